//! Directories of a C program.

use std::ffi::c_char;
use std::io;

use amphi_queue::type_bits;

use super::{done, files, path, set_errno};
use crate::errno::error;
use crate::files::Files;
use crate::listing::{Entry, Listing};

/// What the header calls `amphi_dir`.
pub struct Directory {
    listing: Listing,
    /// The entry that the program looks at.
    shown: libc::dirent,
}

/// As `opendir(3)`.
///
/// # Safety
/// `fs` is null or open, `name` null or a string that ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amphi_opendir(fs: *const Files, name: *const c_char) -> *mut Directory {
    // SAFETY: the caller's promise.
    let (files, name) = unsafe { (files(fs), path(name)) };
    let opened = files.and_then(|files| files.list(name?));
    // SAFETY: all of it is numbers.
    let shown = unsafe { std::mem::zeroed() };
    pointer(opened.map(|listing| Box::into_raw(Box::new(Directory { listing, shown }))))
}

/// As `readdir(3)`.
///
/// # Safety
/// `dir` is null or open, and no other thread uses it meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amphi_readdir(dir: *mut Directory) -> *mut libc::dirent {
    // SAFETY: the caller's promise.
    let Some(dir) = (unsafe { dir.as_mut() }) else { return pointer(Err(error(libc::EFAULT))) };
    match dir.listing.next() {
        None => std::ptr::null_mut(),
        Some(entry) => pointer(entry.and_then(|entry| {
            fill(&mut dir.shown, &entry)?;
            Ok(&raw mut dir.shown)
        })),
    }
}

/// As `closedir(3)`.
///
/// # Safety
/// `dir` is null or open, and nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn amphi_closedir(dir: *mut Directory) -> i32 {
    if dir.is_null() {
        return done(Err(error(libc::EFAULT)));
    }
    // SAFETY: it came from `amphi_opendir`, and nobody uses it any more.
    drop(unsafe { Box::from_raw(dir) });
    0
}

fn fill(shown: &mut libc::dirent, entry: &Entry) -> io::Result<()> {
    let room = shown.d_name.len();
    if entry.name.len() >= room {
        return Err(error(libc::EOVERFLOW));
    }
    shown.d_ino = entry.ino;
    shown.d_off = entry.next as i64;
    shown.d_reclen = size_of::<libc::dirent>() as u16;
    shown.d_type = (type_bits(entry.kind) >> 12) as u8;
    for (to, from) in shown.d_name.iter_mut().zip(entry.name.iter().chain([&0])) {
        *to = *from as c_char;
    }
    Ok(())
}

fn pointer<T>(outcome: io::Result<*mut T>) -> *mut T {
    outcome.unwrap_or_else(|why| {
        set_errno(why.raw_os_error().unwrap_or(libc::EIO));
        std::ptr::null_mut()
    })
}
