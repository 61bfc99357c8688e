//! What a C program does with paths.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::slice;

use libc::{gid_t, mode_t, off_t, size_t, ssize_t, timespec, uid_t};

use super::{NS_PER_S, done, files, path, show, told};
use crate::errno::error;
use crate::files::{Files, SetXattr, Time};

/// Does something with a file system and a path.
///
/// # Safety
/// `fs` is null or open, `name` null or a string that ends.
unsafe fn with<T>(
    fs: *const Files,
    name: *const c_char,
    act: impl FnOnce(&Files, &Path) -> io::Result<T>,
) -> io::Result<T> {
    // SAFETY: the caller's promise.
    let (files, name) = unsafe { (files(fs), path(name)) };
    act(files?, name?)
}

macro_rules! by_path {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*) |$files:ident, $path:ident| $act:expr;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// `fs` is null or open, `name` null or a string that ends.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(fs: *const Files, name: *const c_char $(, $argument: $type)*) -> c_int {
            // SAFETY: the caller's promise.
            done(unsafe { with(fs, name, |$files, $path| $act) })
        }
    )*};
}

by_path! {
    /// As `access(2)`, for the effective user.
    amphi_access(mode: c_int) |files, path| files.access(path, u16::try_from(mode).unwrap_or(u16::MAX));
    /// As `unlink(2)`.
    amphi_unlink() |files, path| files.unlink(path);
    /// As `rmdir(2)`.
    amphi_rmdir() |files, path| files.rmdir(path);
    /// As `mkdir(2)`, without a umask.
    amphi_mkdir(mode: mode_t) |files, path| files.mkdir(path, (mode & 0o7777) as u16);
    /// As `truncate(2)`.
    amphi_truncate(bytes: off_t) |files, path| {
        files.truncate(path, u64::try_from(bytes).map_err(|_| error(libc::EINVAL))?)
    };
    /// As `chmod(2)`.
    amphi_chmod(mode: mode_t) |files, path| files.set_mode(path, (mode & 0o7777) as u16);
    /// As `lchown(2)`.
    amphi_lchown(uid: uid_t, gid: gid_t) |files, path| {
        let given = |id: u32| (id != u32::MAX).then_some(id);
        files.set_owner(path, given(uid), given(gid))
    };
}

/// As `stat(2)`.
///
/// # Safety
/// `fs` is null or open, `name` null or a string that ends, `into` null or room for a `struct stat`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amphi_stat(fs: *const Files, name: *const c_char, into: *mut libc::stat) -> c_int {
    // SAFETY: the caller's promise.
    done(unsafe { with(fs, name, |files, path| show(&files.attributes(path, true)?, files.device(), into)) })
}

/// As `lstat(2)`.
///
/// # Safety
/// As for [`amphi_stat`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amphi_lstat(fs: *const Files, name: *const c_char, into: *mut libc::stat) -> c_int {
    // SAFETY: the caller's promise.
    done(unsafe { with(fs, name, |files, path| show(&files.attributes(path, false)?, files.device(), into)) })
}

/// As `rename(2)`.
///
/// # Safety
/// `fs` is null or open, the names null or strings that end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amphi_rename(fs: *const Files, from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    done(unsafe { with(fs, from, |files, from| files.rename(from, path(to)?)) })
}

/// As `link(2)`.
///
/// # Safety
/// As for [`amphi_rename`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amphi_link(fs: *const Files, from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    done(unsafe { with(fs, from, |files, from| files.link(from, path(to)?)) })
}

/// As `symlink(2)`.
///
/// # Safety
/// As for [`amphi_rename`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amphi_symlink(
    fs: *const Files,
    target: *const c_char,
    name: *const c_char,
) -> c_int {
    // SAFETY: the caller's promise.
    done(unsafe { with(fs, name, |files, name| files.symlink(path(target)?, name)) })
}

/// As `readlink(2)`.
///
/// # Safety
/// `fs` is null or open, `name` null or a string that ends, `into` null or room for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amphi_readlink(
    fs: *const Files,
    name: *const c_char,
    into: *mut c_char,
    len: size_t,
) -> ssize_t {
    // SAFETY: the caller's promise.
    told(unsafe {
        with(fs, name, |files, name| {
            if len == 0 {
                return Err(error(libc::EINVAL));
            }
            let target = files.readlink(name)?;
            let bytes = target.as_os_str().as_bytes();
            copy_out(&bytes[..bytes.len().min(len)], into.cast(), len)
        })
    })
}

/// As `utimensat(2)` from the root.
///
/// # Safety
/// `fs` is null or open, `name` null or a string that ends, `times` null or two of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amphi_utimens(
    fs: *const Files,
    name: *const c_char,
    times: *const timespec,
) -> c_int {
    // SAFETY: the caller's promise.
    done(unsafe {
        with(fs, name, |files, name| {
            let times = match times.cast::<[timespec; 2]>().as_ref() {
                Some([atime, mtime]) => time(atime).and_then(|atime| Ok([atime, time(mtime)?])),
                None => Ok([Time::Now; 2]),
            };
            match times {
                Ok([atime, mtime]) => files.set_times(name, atime, mtime),
                // What is wrong with the path comes first.
                Err(why) => files.attributes(name, true).and(Err(why)),
            }
        })
    })
}

fn time(given: &timespec) -> io::Result<Time> {
    match given.tv_nsec {
        libc::UTIME_NOW => Ok(Time::Now),
        libc::UTIME_OMIT => Ok(Time::Keep),
        ns if (0..NS_PER_S).contains(&ns) => {
            let ns = given.tv_sec.checked_mul(NS_PER_S).and_then(|whole| whole.checked_add(ns));
            ns.map(Time::At).ok_or_else(|| error(libc::EOVERFLOW))
        }
        _ => Err(error(libc::EINVAL)),
    }
}

/// The answer to a question for bytes: how many there are, if there is no room at all.
///
/// # Safety
/// `into` is null or room for `len` bytes.
unsafe fn copy_out(bytes: &[u8], into: *mut c_void, len: size_t) -> io::Result<ssize_t> {
    if len == 0 {
        return Ok(bytes.len() as ssize_t);
    }
    if into.is_null() {
        return Err(error(libc::EFAULT));
    }
    if bytes.len() > len {
        return Err(error(libc::ERANGE));
    }
    // SAFETY: not null, and room for more than that by the caller's promise.
    let room = unsafe { slice::from_raw_parts_mut(into.cast::<u8>(), bytes.len()) };
    room.copy_from_slice(bytes);
    Ok(bytes.len() as ssize_t)
}

/// # Safety
/// `text` is null or a string that ends.
unsafe fn name_of<'a>(text: *const c_char) -> io::Result<&'a [u8]> {
    if text.is_null() {
        return Err(error(libc::EFAULT));
    }
    // SAFETY: not null, and the caller's promise.
    Ok(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// As `getxattr(2)`.
///
/// # Safety
/// `fs` is null or open, the names null or strings that end, `into` null or room for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amphi_getxattr(
    fs: *const Files,
    name: *const c_char,
    attribute: *const c_char,
    into: *mut c_void,
    len: size_t,
) -> ssize_t {
    // SAFETY: the caller's promise.
    told(unsafe {
        with(fs, name, |files, name| copy_out(&files.xattr(name, name_of(attribute)?)?, into, len))
    })
}

/// As `setxattr(2)`.
///
/// # Safety
/// `fs` is null or open, the names null or strings that end, `value` null or `len` readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amphi_setxattr(
    fs: *const Files,
    name: *const c_char,
    attribute: *const c_char,
    value: *const c_void,
    len: size_t,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    done(unsafe {
        with(fs, name, |files, name| {
            let how = match flags {
                0 => SetXattr::Any,
                libc::XATTR_CREATE => SetXattr::Create,
                libc::XATTR_REPLACE => SetXattr::Replace,
                _ => return Err(error(libc::EINVAL)),
            };
            let value = match len {
                0 => &[],
                _ if value.is_null() => return Err(error(libc::EFAULT)),
                _ => slice::from_raw_parts(value.cast::<u8>(), len),
            };
            files.set_xattr(name, name_of(attribute)?, value, how)
        })
    })
}

/// As `listxattr(2)`.
///
/// # Safety
/// `fs` is null or open, `name` null or a string that ends, `into` null or room for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amphi_listxattr(
    fs: *const Files,
    name: *const c_char,
    into: *mut c_char,
    len: size_t,
) -> ssize_t {
    // SAFETY: the caller's promise.
    told(unsafe { with(fs, name, |files, name| copy_out(&files.xattrs(name)?, into.cast(), len)) })
}

/// As `removexattr(2)`.
///
/// # Safety
/// `fs` is null or open, the names null or strings that end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amphi_removexattr(
    fs: *const Files,
    name: *const c_char,
    attribute: *const c_char,
) -> c_int {
    // SAFETY: the caller's promise.
    done(unsafe { with(fs, name, |files, name| files.remove_xattr(name, name_of(attribute)?)) })
}

/// As `statvfs(3)`.
///
/// # Safety
/// `fs` is null or open, `into` null or room for a `struct statvfs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amphi_statvfs(fs: *const Files, into: *mut libc::statvfs) -> c_int {
    // SAFETY: the caller's promise.
    done(unsafe { files(fs) }.and_then(|files| {
        let space = files.space()?;
        if into.is_null() {
            return Err(error(libc::EFAULT));
        }
        // SAFETY: all of it is numbers.
        let mut shown: libc::statvfs = unsafe { std::mem::zeroed() };
        shown.f_bsize = space.block_bytes.get().into();
        shown.f_frsize = space.block_bytes.get().into();
        shown.f_blocks = space.blocks.get();
        shown.f_bfree = space.blocks_free.get();
        shown.f_bavail = space.blocks_available.get();
        shown.f_files = space.inodes.get();
        shown.f_ffree = space.inodes_free.get();
        shown.f_favail = space.inodes_free.get();
        shown.f_fsid = files.device();
        shown.f_namemax = space.name_bytes_max.get().into();
        // SAFETY: not null, and room by the caller's promise.
        unsafe { into.write(shown) };
        Ok(())
    }))
}
