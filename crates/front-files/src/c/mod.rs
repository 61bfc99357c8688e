//! The functions of `amphi.h`: a C program's pointers in, errno out.
//!
//! A function answers what POSIX's of the same name does: -1, or null, and `errno` where it failed. A null
//! pointer where the header wants none is `EFAULT`.

mod descriptors;
mod directories;
mod names;

use std::cell::RefCell;
use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use amphi_queue::format::Attributes;
use amphi_queue::type_bits;

use crate::errno::{OpenError, error};
use crate::files::Files;
use crate::image::ImageOptions;

thread_local!(static LAST: RefCell<CString> = RefCell::default());

/// `AMPHI_FREE`.
const FREE: c_int = 1;

const NS_PER_S: i64 = 1_000_000_000;
/// Preferred I/O size, in bytes, as FUSE shows it.
const BLOCK_BYTES: i64 = 4096;

fn set_errno(errno: i32) {
    // SAFETY: the location is this thread's own.
    unsafe { *libc::__errno_location() = errno };
}

/// -1 and `errno`, or what a call returns.
fn told<T: From<i8>>(outcome: io::Result<T>) -> T {
    outcome.unwrap_or_else(|why| {
        set_errno(why.raw_os_error().unwrap_or(libc::EIO));
        T::from(-1)
    })
}

/// 0, or -1 and `errno`.
fn done(outcome: io::Result<()>) -> c_int {
    told(outcome.map(|()| 0))
}

/// The path of a C string.
///
/// # Safety
/// `text` is null or a string that ends.
unsafe fn path<'a>(text: *const c_char) -> io::Result<&'a Path> {
    if text.is_null() {
        return Err(error(libc::EFAULT));
    }
    // SAFETY: not null, and the caller's promise.
    Ok(Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(text) }.to_bytes())))
}

/// The file system of a handle.
///
/// # Safety
/// `fs` is null or open.
unsafe fn files<'a>(fs: *const Files) -> io::Result<&'a Files> {
    // SAFETY: the caller's promise.
    unsafe { fs.as_ref() }.ok_or_else(|| error(libc::EFAULT))
}

fn opened(outcome: Result<Files, OpenError>) -> *mut Files {
    match outcome {
        Ok(files) => Box::into_raw(Box::new(files)),
        Err(why) => {
            let sentence = CString::new(why.to_string()).unwrap_or_default();
            LAST.with(|last| *last.borrow_mut() = sentence);
            set_errno(why.errno());
            std::ptr::null_mut()
        }
    }
}

/// Opens the file system mounted at a directory.
///
/// # Safety
/// `directory` is null or a string that ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amphi_mounted(directory: *const c_char) -> *mut Files {
    // SAFETY: the caller's promise.
    let directory = unsafe { path(directory) };
    opened(directory.map_err(|_| OpenError::Argument("a pointer is null")).and_then(Files::mounted))
}

/// Opens the file system on an image.
///
/// # Safety
/// `image` is null or a string that ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amphi_image(image: *const c_char, flags: c_int) -> *mut Files {
    if flags & !FREE != 0 {
        return opened(Err(OpenError::Argument("no such flag")));
    }
    // SAFETY: the caller's promise.
    let image = unsafe { path(image) }.map_err(|_| OpenError::Argument("a pointer is null"));
    let options = ImageOptions { free: flags & FREE != 0, ..ImageOptions::default() };
    opened(image.and_then(|image| Files::image(image, &options)))
}

/// Makes everything durable and gives the mount or the image back. `EBUSY` leaves it as it is.
///
/// # Safety
/// `fs` is null or open, and nobody else uses it any more unless this fails with `EBUSY`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amphi_leave(fs: *mut Files) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { files(fs) } {
        Ok(files) if !files.is_idle() => done(Err(error(libc::EBUSY))),
        // SAFETY: it came from `opened`, and nobody uses it any more.
        Ok(_) => done(unsafe { Box::from_raw(fs) }.close()),
        Err(why) => done(Err(why)),
    }
}

/// The sentence of the calling thread's last failure to open a file system. Valid until its next one.
#[unsafe(no_mangle)]
pub extern "C" fn amphi_error() -> *const c_char {
    LAST.with(|last| last.borrow().as_ptr())
}

/// Makes everything durable.
///
/// # Safety
/// `fs` is null or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amphi_sync(fs: *const Files) -> c_int {
    // SAFETY: the caller's promise.
    done(unsafe { files(fs) }.and_then(Files::sync))
}

const fn split(ns: i64) -> (i64, i64) {
    (ns.div_euclid(NS_PER_S), ns.rem_euclid(NS_PER_S))
}

/// Shows attributes.
///
/// # Safety
/// `into` is null or room for a `struct stat`.
unsafe fn show(attributes: &Attributes, device: u64, into: *mut libc::stat) -> io::Result<()> {
    if into.is_null() {
        return Err(error(libc::EFAULT));
    }
    // SAFETY: all of it is numbers.
    let mut shown: libc::stat = unsafe { std::mem::zeroed() };
    shown.st_dev = device;
    shown.st_ino = attributes.ino.get();
    shown.st_mode = type_bits(attributes.kind.get()) | u32::from(attributes.mode.get());
    shown.st_nlink = u64::from(attributes.nlink.get()) as _;
    shown.st_uid = attributes.uid.get();
    shown.st_gid = attributes.gid.get();
    shown.st_rdev = u64::from(attributes.rdev.get());
    shown.st_size = attributes.size.get() as i64;
    shown.st_blksize = BLOCK_BYTES as _;
    shown.st_blocks = attributes.blocks.get() as i64;
    (shown.st_atime, shown.st_atime_nsec) = split(attributes.atime.get());
    (shown.st_mtime, shown.st_mtime_nsec) = split(attributes.mtime.get());
    (shown.st_ctime, shown.st_ctime_nsec) = split(attributes.ctime.get());
    // SAFETY: not null, and the caller's promise.
    unsafe { into.write(shown) };
    Ok(())
}
