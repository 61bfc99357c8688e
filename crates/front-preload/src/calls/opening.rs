//! `open` and its relatives: the kernel opens, and the queue opens the same file beside.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::os::fd::BorrowedFd;

use amphi_queue::format::{Submission, flag, kind, op};
use libc::{AT_FDCWD, c_char, c_int, mode_t};

use super::{close_handle, with_place};
use crate::command::{self, Place};
use crate::descriptors::{self, APPEND, DIRECT, DIRECTORY, READ, SYNC_ALL, SYNC_DATA, WRITE};
use crate::next::next;
use crate::report::{self, Call};
use crate::{errno, fork, mounts};

/// Opens beside the kernel what it has opened.
fn adopt(fd: c_int, dir: c_int, path: *const c_char, flags: c_int) -> c_int {
    if fd < 0 || path.is_null() || flags & libc::O_PATH != 0 || flags & libc::O_TMPFILE == libc::O_TMPFILE {
        return fd;
    }
    let before = errno::current();
    // SAFETY: the kernel has read it as a path, so it ends with a zero byte.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    if let Some(adopted) = with_place(dir, path, |place| try_adopt(fd, place, flags)) {
        report::count(Call::Open, adopted);
    }
    errno::fail(before);
    fd
}

fn try_adopt(fd: c_int, place: Place<'_>, flags: c_int) -> bool {
    // SAFETY: the program has just opened it and does not know it yet.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    let Some((device, ino, _)) = mounts::identity(borrowed) else { return false };
    if mounts::all().get(place.mount).is_none_or(|mount| mount.device != device) {
        return false;
    }
    let (mut how, mut known) = match flags & libc::O_ACCMODE {
        libc::O_RDONLY => (flag::READ, READ),
        libc::O_WRONLY => (flag::WRITE, WRITE),
        _ => (flag::READ | flag::WRITE, READ | WRITE),
    };
    for (bits, means) in [
        (libc::O_APPEND, APPEND),
        (libc::O_DSYNC, SYNC_DATA),
        (libc::O_SYNC, SYNC_ALL | SYNC_DATA),
        (libc::O_DIRECT, DIRECT),
    ] {
        if flags & bits == bits {
            known |= means;
        }
    }
    if flags & libc::O_NOFOLLOW != 0 {
        how |= flag::NO_FOLLOW;
    }
    let open = Submission {
        operation: op::OPEN.into(),
        flags: how.into(),
        handle: place.handle.into(),
        ..Submission::default()
    };
    let Ok(answer) = command::plain(place.mount, place.path, b"", open) else { return false };
    if answer.attributes.kind == kind::DIRECTORY {
        known = DIRECTORY;
    }
    let handle = answer.value.get();
    // A name may have come to mean another file in between.
    let is_same = answer.attributes.ino == ino;
    fork::prepare();
    if is_same && descriptors::put(fd, place.mount, handle, known) {
        return true;
    }
    let none = descriptors::Opened::unplaced(place.mount, handle);
    close_handle(&none);
    false
}

macro_rules! opening {
    ($($name:ident, $name_at:ident, $name_creat:ident;)*) => {$(
        /// See the module.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
            let fd = next!($name(path: *const c_char, flags: c_int, mode: mode_t) -> c_int);
            adopt(fd, AT_FDCWD, path, flags)
        }

        /// See the module.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name_at(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
            let fd = next!($name_at(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int);
            adopt(fd, dir, path, flags)
        }

        /// See the module.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name_creat(path: *const c_char, mode: mode_t) -> c_int {
            let fd = next!($name_creat(path: *const c_char, mode: mode_t) -> c_int);
            adopt(fd, AT_FDCWD, path, libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC)
        }
    )*};
}

opening! {
    open, openat, creat;
    open64, openat64, creat64;
}

macro_rules! checked_opening {
    ($($name:ident, $name_at:ident;)*) => {$(
        /// What programs call that were compiled with `_FORTIFY_SOURCE`.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, flags: c_int) -> c_int {
            let fd = next!($name(path: *const c_char, flags: c_int) -> c_int);
            adopt(fd, AT_FDCWD, path, flags)
        }

        /// As above.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name_at(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
            let fd = next!($name_at(dir: c_int, path: *const c_char, flags: c_int) -> c_int);
            adopt(fd, dir, path, flags)
        }
    )*};
}

checked_opening! {
    __open_2, __openat_2;
    __open64_2, __openat64_2;
}
