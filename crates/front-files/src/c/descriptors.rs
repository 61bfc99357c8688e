//! Open files of a C program: numbers of this library's own, with an offset each.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::io;
use std::slice;
use std::sync::Arc;

use amphi_rt::sync::{Mutex, RwLock};
use libc::{mode_t, off_t, size_t, ssize_t};

use super::{done, files, path, show, told};
use crate::errno::error;
use crate::file::{Allocate, File, Whence};
use crate::files::{Files, How};

/// The first number: the kernel has none so high, so that one that is given to it is `EBADF` there.
const FIRST: c_int = 1 << 30;

struct Descriptor {
    file: File,
    device: u64,
    /// Where the next read or write without an offset goes.
    offset: Mutex<u64>,
}

static TABLE: RwLock<Vec<Option<Arc<Descriptor>>>> = RwLock::new(Vec::new());

fn index(fd: c_int) -> io::Result<usize> {
    fd.checked_sub(FIRST).and_then(|index| usize::try_from(index).ok()).ok_or_else(|| error(libc::EBADF))
}

fn get(fd: c_int) -> io::Result<Arc<Descriptor>> {
    let index = index(fd)?;
    TABLE.read().get(index).cloned().flatten().ok_or_else(|| error(libc::EBADF))
}

fn keep(descriptor: Descriptor) -> io::Result<c_int> {
    let mut table = TABLE.write();
    let index = table.iter().position(Option::is_none).unwrap_or(table.len());
    let number = c_int::try_from(index).ok().and_then(|index| FIRST.checked_add(index));
    let number = number.ok_or_else(|| error(libc::EMFILE))?;
    if index == table.len() {
        table.push(None);
    }
    table[index] = Some(Arc::new(descriptor));
    Ok(number)
}

fn offset(given: off_t) -> io::Result<u64> {
    u64::try_from(given).map_err(|_| error(libc::EINVAL))
}

/// # Safety
/// `at` is null or points at `len` readable bytes.
unsafe fn given<'a>(at: *const c_void, len: size_t) -> io::Result<&'a [u8]> {
    match (at.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(error(libc::EFAULT)),
        // SAFETY: not null, and the caller's promise.
        (false, _) => Ok(unsafe { slice::from_raw_parts(at.cast(), len.min(isize::MAX as usize)) }),
    }
}

/// # Safety
/// `at` is null or points at `len` writable bytes.
unsafe fn room<'a>(at: *mut c_void, len: size_t) -> io::Result<&'a mut [u8]> {
    match (at.is_null(), len) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(error(libc::EFAULT)),
        // SAFETY: not null, and the caller's promise. The program lends it to this call alone.
        (false, _) => Ok(unsafe { slice::from_raw_parts_mut(at.cast(), len.min(isize::MAX as usize)) }),
    }
}

fn how(flags: c_int, mode: mode_t) -> io::Result<How> {
    let (read, write) = match flags & libc::O_ACCMODE {
        libc::O_RDONLY => (true, false),
        libc::O_WRONLY => (false, true),
        libc::O_RDWR => (true, true),
        _ => return Err(error(libc::EINVAL)),
    };
    let has = |bits| flags & bits == bits;
    let unnamed = has(libc::O_TMPFILE);
    Ok(How {
        read,
        write,
        append: has(libc::O_APPEND),
        truncate: has(libc::O_TRUNC),
        create: (has(libc::O_CREAT) || unnamed).then_some((mode & 0o7777) as u16),
        exclusive: has(libc::O_CREAT | libc::O_EXCL),
        directory: has(libc::O_DIRECTORY) && !unnamed,
        no_follow: has(libc::O_NOFOLLOW),
        unnamed,
        direct: has(libc::O_DIRECT),
        sync_data: has(libc::O_DSYNC),
        sync_all: has(libc::O_SYNC),
    })
}

/// As `open(2)`.
///
/// # Safety
/// `fs` is null or open, `name` null or a string that ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amphi_open(
    fs: *const Files,
    name: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    // SAFETY: the caller's promise.
    let (files, name) = unsafe { (files(fs), path(name)) };
    told(files.and_then(|files| {
        let mut how = how(flags, mode)?;
        // A file that appends must be open for writing to have an end to go to; one that only reads has none.
        how.append &= how.write;
        let file = files.open(name?, how)?;
        keep(Descriptor { file, device: files.device(), offset: Mutex::new(0) })
    }))
}

/// As `close(2)`.
#[unsafe(no_mangle)]
pub extern "C" fn amphi_close(fd: c_int) -> c_int {
    done(index(fd).and_then(|index| {
        let closed = TABLE.write().get_mut(index).and_then(Option::take);
        // Whatever closing does, it does without the table.
        closed.map(drop).ok_or_else(|| error(libc::EBADF))
    }))
}

/// As `read(2)`.
///
/// # Safety
/// `at` is null or points at `len` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amphi_read(fd: c_int, at: *mut c_void, len: size_t) -> ssize_t {
    told(get(fd).and_then(|open| {
        // SAFETY: the caller's promise.
        let room = unsafe { room(at, len) }?;
        let mut offset = open.offset.lock();
        let read = open.file.read_at(room, *offset)?;
        *offset += read as u64;
        Ok(read as ssize_t)
    }))
}

/// As `write(2)`.
///
/// # Safety
/// `at` is null or points at `len` readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amphi_write(fd: c_int, at: *const c_void, len: size_t) -> ssize_t {
    told(get(fd).and_then(|open| {
        // SAFETY: the caller's promise.
        let data = unsafe { given(at, len) }?;
        let mut offset = open.offset.lock();
        let (written, end) = open.file.write(data, *offset, open.file.appends())?;
        if written > 0 {
            *offset = end;
        }
        Ok(written as ssize_t)
    }))
}

/// As `pread(2)`.
///
/// # Safety
/// `at` is null or points at `len` writable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amphi_pread(fd: c_int, at: *mut c_void, len: size_t, from: off_t) -> ssize_t {
    told(get(fd).and_then(|open| {
        // SAFETY: the caller's promise.
        let room = unsafe { room(at, len) }?;
        Ok(open.file.read_at(room, offset(from)?)? as ssize_t)
    }))
}

/// As `pwrite(2)`, Linux's: a file that appends appends here too.
///
/// # Safety
/// `at` is null or points at `len` readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amphi_pwrite(fd: c_int, at: *const c_void, len: size_t, to: off_t) -> ssize_t {
    told(get(fd).and_then(|open| {
        // SAFETY: the caller's promise.
        let data = unsafe { given(at, len) }?;
        Ok(open.file.write_at(data, offset(to)?)? as ssize_t)
    }))
}

/// As `lseek(2)`.
#[unsafe(no_mangle)]
pub extern "C" fn amphi_lseek(fd: c_int, by: off_t, whence: c_int) -> off_t {
    told(get(fd).and_then(|open| {
        let mut at = open.offset.lock();
        let from = |base: u64| base.checked_add_signed(by).ok_or_else(|| error(libc::EINVAL));
        let found = match whence {
            libc::SEEK_SET => offset(by)?,
            libc::SEEK_CUR => from(*at)?,
            libc::SEEK_END => from(open.file.attributes()?.size.get())?,
            libc::SEEK_DATA => open.file.seek(Whence::Data, offset(by)?)?,
            libc::SEEK_HOLE => open.file.seek(Whence::Hole, offset(by)?)?,
            _ => return Err(error(libc::EINVAL)),
        };
        let told = off_t::try_from(found).map_err(|_| error(libc::EOVERFLOW))?;
        *at = found;
        Ok(told)
    }))
}

/// As `fsync(2)`.
#[unsafe(no_mangle)]
pub extern "C" fn amphi_fsync(fd: c_int) -> c_int {
    done(get(fd).and_then(|open| open.file.sync()))
}

/// As `fdatasync(2)`.
#[unsafe(no_mangle)]
pub extern "C" fn amphi_fdatasync(fd: c_int) -> c_int {
    done(get(fd).and_then(|open| open.file.sync_data()))
}

/// As `ftruncate(2)`.
#[unsafe(no_mangle)]
pub extern "C" fn amphi_ftruncate(fd: c_int, bytes: off_t) -> c_int {
    done(offset(bytes).and_then(|bytes| get(fd)?.file.set_len(bytes)))
}

/// As `fallocate(2)`.
#[unsafe(no_mangle)]
pub extern "C" fn amphi_fallocate(fd: c_int, mode: c_int, at: off_t, length: off_t) -> c_int {
    done(get(fd).and_then(|open| {
        let keep_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        let what = match mode & !libc::FALLOC_FL_KEEP_SIZE {
            0 => Allocate::Reserve { keep_size },
            libc::FALLOC_FL_PUNCH_HOLE if keep_size => Allocate::PunchHole,
            libc::FALLOC_FL_ZERO_RANGE => Allocate::Zero { keep_size },
            _ => return Err(error(libc::EOPNOTSUPP)),
        };
        open.file.allocate(what, offset(at)?, offset(length)?)
    }))
}

/// As `fstat(2)`.
///
/// # Safety
/// `into` is null or room for a `struct stat`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amphi_fstat(fd: c_int, into: *mut libc::stat) -> c_int {
    done(get(fd).and_then(|open| {
        // SAFETY: the caller's promise.
        unsafe { show(&open.file.attributes()?, open.device, into) }
    }))
}

/// As `copy_file_range(2)`, between files of one file system.
///
/// # Safety
/// `from_at` and `to_at` are null or point at offsets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amphi_copy_file_range(
    from: c_int,
    from_at: *mut off_t,
    to: c_int,
    to_at: *mut off_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    told(get(from).and_then(|source| {
        let target = get(to)?;
        if flags != 0 {
            return Err(error(libc::EINVAL));
        }
        // SAFETY: the caller's promise.
        let (from_at, to_at) = unsafe { (from_at.as_mut(), to_at.as_mut()) };
        let place = |given: &Option<&mut off_t>, own: &Mutex<u64>| match given {
            Some(given) => offset(**given),
            None => Ok(*own.lock()),
        };
        let (begin, there) = (place(&from_at, &source.offset)?, place(&to_at, &target.offset)?);
        let copied = source.file.copy_to(begin, &target.file, there, len as u64)?;
        let moved = |given: Option<&mut off_t>, own: &Mutex<u64>, to: u64| match given {
            Some(given) => *given = to as off_t,
            None => *own.lock() = to,
        };
        moved(from_at, &source.offset, begin + copied);
        moved(to_at, &target.offset, there + copied);
        Ok(copied as ssize_t)
    }))
}
