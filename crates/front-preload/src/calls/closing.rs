//! Calls after which a descriptor's number means nothing, or something else.
#![allow(unsafe_code)]

use libc::{FILE, c_int, c_uint};

use super::let_go;
use crate::descriptors;
use crate::next::next;

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    let_go(fd);
    next!(close(fd: c_int) -> c_int)
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(old: c_int, new: c_int) -> c_int {
    if old != new {
        let_go(new);
    }
    // Two numbers share one offset from now on; both move it in the kernel, but each has its own turn.
    let_go(old);
    next!(dup2(old: c_int, new: c_int) -> c_int)
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    if old != new {
        let_go(new);
    }
    let_go(old);
    next!(dup3(old: c_int, new: c_int, flags: c_int) -> c_int)
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup(old: c_int) -> c_int {
    let_go(old);
    next!(dup(old: c_int) -> c_int)
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    for fd in descriptors::all().filter(|fd| (first..=last).contains(&(*fd as c_uint))) {
        let_go(fd);
    }
    next!(close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int)
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(first: c_int) {
    for fd in descriptors::all().filter(|fd| *fd >= first) {
        let_go(fd);
    }
    next!(closefrom(first: c_int) -> ());
}

/// Stdio closes inside libc.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fclose(file: *mut FILE) -> c_int {
    if !file.is_null() {
        // SAFETY: an open stream, as the program says.
        let_go(unsafe { libc::fileno(file) });
    }
    next!(fclose(file: *mut FILE) -> c_int)
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freopen(
    path: *const libc::c_char,
    mode: *const libc::c_char,
    file: *mut FILE,
) -> *mut FILE {
    if !file.is_null() {
        // SAFETY: as above.
        let_go(unsafe { libc::fileno(file) });
    }
    next!(freopen(path: *const libc::c_char, mode: *const libc::c_char, file: *mut FILE) -> *mut FILE)
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn closedir(dir: *mut libc::DIR) -> c_int {
    if !dir.is_null() {
        // SAFETY: an open stream, as the program says.
        let_go(unsafe { libc::dirfd(dir) });
    }
    next!(closedir(dir: *mut libc::DIR) -> c_int)
}
