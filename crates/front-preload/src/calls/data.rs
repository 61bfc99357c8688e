//! Reading, writing and synchronizing open files.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;
use std::slice;

use amphi_queue::format::{Completion, Submission, flag, op};
use libc::{c_int, c_void, iovec, off_t, size_t, ssize_t};
use rustix::fs::SeekFrom;

use crate::command::{self, DATA_BYTES_MAX};
use crate::descriptors::{self, APPEND, DIRECT, Opened, READ, SHARED, SYNC_ALL, SYNC_DATA, WRITE};
use crate::errno::{Verdict, fail};
use crate::next::next;
use crate::report::{self, Call};

/// The answer to a program, or none if the kernel is to give it.
type Told = Option<isize>;

fn told(call: Call, answer: Result<usize, Verdict>) -> Told {
    let told = match answer {
        Ok(value) => Some(value as isize),
        Err(Verdict::Errno(errno)) => Some(fail(errno)),
        Err(Verdict::AskKernel) => None,
    };
    report::count(call, told.is_some());
    told
}

/// Parts of a program's buffer.
#[derive(Clone, Copy)]
struct Parts<'a>(&'a [iovec]);

impl<'a> Parts<'a> {
    /// # Safety
    /// `list` is what a program passed to a call that reads or writes by it.
    unsafe fn new(list: *const iovec, count: c_int) -> Option<Self> {
        let count = usize::try_from(count).ok().filter(|count| *count <= 1024 && !list.is_null())?;
        // SAFETY: the caller's.
        Some(Self(unsafe { slice::from_raw_parts(list, count) }))
    }

    /// Bytes of all, if the queue moves as many.
    fn len(self) -> Option<usize> {
        let len = self.0.iter().try_fold(0_usize, |sum, part| sum.checked_add(part.iov_len))?;
        (1..=DATA_BYTES_MAX).contains(&len).then_some(len)
    }

    fn fill(self, area: &amphi_queue::Payload<'_>) {
        let mut at = 0;
        for part in self.0.iter().filter(|part| part.iov_len > 0) {
            // SAFETY: the program's buffer, as it says.
            let from = unsafe { slice::from_raw_parts(part.iov_base.cast::<u8>(), part.iov_len) };
            if let Some(to) = area.part(at, from.len() as u32) {
                to.put(from);
            }
            at += from.len() as u32;
        }
    }

    fn empty(self, area: &amphi_queue::Payload<'_>, len: usize) {
        let mut at = 0;
        for part in self.0 {
            let len = part.iov_len.min(len - at);
            if len == 0 {
                continue;
            }
            // SAFETY: as above.
            let to = unsafe { slice::from_raw_parts_mut(part.iov_base.cast::<u8>(), len) };
            if let Some(from) = area.part(at as u32, len as u32) {
                from.take(to);
            }
            at += len;
        }
    }
}

fn read_at(opened: &Opened, parts: Parts<'_>, offset: u64) -> Result<usize, Verdict> {
    let len = parts.len().ok_or(Verdict::AskKernel)?;
    let flags = if opened.flags & DIRECT != 0 { flag::DIRECT } else { 0 };
    let read = Submission {
        operation: op::READ.into(),
        flags: flags.into(),
        handle: opened.handle.into(),
        offset: offset.into(),
        ..Submission::default()
    };
    let empty = |area: &amphi_queue::Payload<'_>, answer: &Completion| {
        parts.empty(area, (answer.len.get() as usize).min(len));
    };
    let answer = command::run(opened.mount, b"", b"", read, len, |_| {}, empty)?;
    Ok((answer.len.get() as usize).min(len))
}

/// Writes at the offset, or at the end if the descriptor appends; how many bytes, and where an append ended.
fn write_at(opened: &Opened, parts: Parts<'_>, offset: u64) -> Result<(usize, u64), Verdict> {
    let len = parts.len().ok_or(Verdict::AskKernel)?;
    let flags = [
        (APPEND, flag::APPEND),
        (DIRECT, flag::DIRECT),
        (SYNC_DATA, flag::SYNC_DATA),
        (SYNC_ALL, flag::SYNC_ALL),
    ];
    let flags =
        flags.iter().filter(|(known, _)| opened.flags & known != 0).fold(0, |all, (_, flag)| all | flag);
    let write = Submission {
        operation: op::WRITE.into(),
        flags: flags.into(),
        handle: opened.handle.into(),
        offset: offset.into(),
        ..Submission::default()
    };
    let answer = command::run(opened.mount, b"", b"", write, len, |area| parts.fill(area), |_, _| {})?;
    Ok(((answer.value.get() as usize).min(len), answer.other.get()))
}

/// An offset as programs pass it; a negative one is the kernel's to refuse.
fn positive(offset: off_t) -> Option<u64> {
    u64::try_from(offset).ok()
}

/// The descriptor, if the queue is the better one to ask for its contents. What goes past the kernel's cache always is.
fn readable(fd: c_int) -> Option<Opened> {
    let opened = descriptors::get(fd).filter(|opened| opened.flags & READ != 0)?;
    let by_queue = opened.flags & DIRECT != 0 || descriptors::is_for_queue(fd);
    if !by_queue {
        report::count(Call::Read, false);
    }
    by_queue.then_some(opened)
}

fn pread_parts(fd: c_int, parts: Option<Parts<'_>>, offset: off_t) -> Told {
    let opened = readable(fd)?;
    told(Call::Read, read_at(&opened, parts?, positive(offset)?))
}

fn pwrite_parts(fd: c_int, parts: Option<Parts<'_>>, offset: off_t) -> Told {
    let opened = descriptors::get(fd).filter(|opened| opened.flags & WRITE != 0)?;
    descriptors::wrote(fd);
    told(Call::Write, write_at(&opened, parts?, positive(offset)?).map(|(len, _)| len))
}

/// The kernel's offset of a descriptor, and the right to move it.
fn position(fd: c_int, opened: &Opened) -> Option<(descriptors::Moving, BorrowedFd<'static>, u64)> {
    if opened.flags & SHARED != 0 {
        return None;
    }
    let moving = descriptors::moving(fd)?;
    // SAFETY: the program calls with it, so it is open as long as this call lasts.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    let offset = rustix::fs::seek(borrowed, SeekFrom::Current(0)).ok()?;
    Some((moving, borrowed, offset))
}

fn read_parts(fd: c_int, parts: Option<Parts<'_>>) -> Told {
    let opened = readable(fd)?;
    let (_moving, borrowed, offset) = position(fd, &opened)?;
    let answer = read_at(&opened, parts?, offset);
    if let Ok(read) = answer {
        // A descriptor that was there a moment ago: a program that closes it in another thread gets what it gets.
        let _ = rustix::fs::seek(borrowed, SeekFrom::Start(offset + read as u64));
    }
    told(Call::Read, answer)
}

fn write_parts(fd: c_int, parts: Option<Parts<'_>>) -> Told {
    let opened = descriptors::get(fd).filter(|opened| opened.flags & WRITE != 0)?;
    let (_moving, borrowed, offset) = position(fd, &opened)?;
    descriptors::wrote(fd);
    let answer = write_at(&opened, parts?, offset);
    if let Ok((written, end)) = answer {
        let next = if opened.flags & APPEND != 0 { end } else { offset + written as u64 };
        let _ = rustix::fs::seek(borrowed, SeekFrom::Start(next));
    }
    told(Call::Write, answer.map(|(written, _)| written))
}

fn one(buffer: *const c_void, len: size_t) -> [iovec; 1] {
    [iovec { iov_base: buffer.cast_mut(), iov_len: len }]
}

fn sync(fd: c_int, data_only: bool) -> Told {
    let opened = descriptors::get(fd)?;
    let flags = if data_only { flag::DATA_ONLY } else { 0 };
    let sync = Submission {
        operation: op::SYNC_FILE.into(),
        flags: flags.into(),
        handle: opened.handle.into(),
        ..Submission::default()
    };
    told(Call::Sync, command::plain(opened.mount, b"", b"", sync).map(|_| 0))
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn read(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t {
    read_parts(fd, Some(Parts(&one(buffer, len))))
        .unwrap_or_else(|| next!(read(fd: c_int, buffer: *mut c_void, len: size_t) -> ssize_t))
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn write(fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t {
    write_parts(fd, Some(Parts(&one(buffer, len))))
        .unwrap_or_else(|| next!(write(fd: c_int, buffer: *const c_void, len: size_t) -> ssize_t))
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readv(fd: c_int, list: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: as the program says.
    read_parts(fd, unsafe { Parts::new(list, count) })
        .unwrap_or_else(|| next!(readv(fd: c_int, list: *const iovec, count: c_int) -> ssize_t))
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn writev(fd: c_int, list: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: as the program says.
    write_parts(fd, unsafe { Parts::new(list, count) })
        .unwrap_or_else(|| next!(writev(fd: c_int, list: *const iovec, count: c_int) -> ssize_t))
}

macro_rules! at_offsets {
    ($($pread:ident $pwrite:ident $preadv:ident $pwritev:ident;)*) => {$(
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $pread(fd: c_int, buffer: *mut c_void, len: size_t, offset: off_t) -> ssize_t {
            pread_parts(fd, Some(Parts(&one(buffer, len))), offset).unwrap_or_else(|| {
                next!($pread(fd: c_int, buffer: *mut c_void, len: size_t, offset: off_t) -> ssize_t)
            })
        }

        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $pwrite(fd: c_int, buffer: *const c_void, len: size_t, offset: off_t) -> ssize_t {
            pwrite_parts(fd, Some(Parts(&one(buffer, len))), offset).unwrap_or_else(|| {
                next!($pwrite(fd: c_int, buffer: *const c_void, len: size_t, offset: off_t) -> ssize_t)
            })
        }

        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $preadv(fd: c_int, list: *const iovec, count: c_int, offset: off_t) -> ssize_t {
            // SAFETY: as the program says.
            pread_parts(fd, unsafe { Parts::new(list, count) }, offset).unwrap_or_else(|| {
                next!($preadv(fd: c_int, list: *const iovec, count: c_int, offset: off_t) -> ssize_t)
            })
        }

        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $pwritev(fd: c_int, list: *const iovec, count: c_int, offset: off_t) -> ssize_t {
            // SAFETY: as the program says.
            pwrite_parts(fd, unsafe { Parts::new(list, count) }, offset).unwrap_or_else(|| {
                next!($pwritev(fd: c_int, list: *const iovec, count: c_int, offset: off_t) -> ssize_t)
            })
        }
    )*};
}

at_offsets! {
    pread pwrite preadv pwritev;
    pread64 pwrite64 preadv64 pwritev64;
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fsync(fd: c_int) -> c_int {
    sync(fd, false).map_or_else(|| next!(fsync(fd: c_int) -> c_int), |told| told as c_int)
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdatasync(fd: c_int) -> c_int {
    sync(fd, true).map_or_else(|| next!(fdatasync(fd: c_int) -> c_int), |told| told as c_int)
}
