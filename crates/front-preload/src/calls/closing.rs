//! Calls after which a descriptor's number means nothing, or something else.
#![allow(unsafe_code)]

use libc::{FILE, c_int, c_uint};

use super::{copied, let_go, listing};
use crate::errno::fail;
use crate::next::next;
use crate::{descriptors, placeholder};

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    if placeholder::is_ours(fd) {
        // The program has never opened it.
        return fail(libc::EBADF) as c_int;
    }
    let_go(fd);
    next!(close(fd: c_int) -> c_int)
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(old: c_int, new: c_int) -> c_int {
    copied(old, || {
        if old != new {
            let_go(new);
        }
        next!(dup2(old: c_int, new: c_int) -> c_int)
    })
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    copied(old, || {
        if old != new {
            let_go(new);
        }
        next!(dup3(old: c_int, new: c_int, flags: c_int) -> c_int)
    })
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup(old: c_int) -> c_int {
    copied(old, || next!(dup(old: c_int) -> c_int))
}

/// Closes a range but what is the library's own in it.
fn close_but_ours(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let mut from = first;
    let mut ours: Vec<c_uint> = placeholder::ours().map(|fd| fd as c_uint).collect();
    ours.retain(|fd| (first..=last).contains(fd));
    ours.sort_unstable();
    for fd in ours {
        if fd > from {
            let last = fd - 1;
            let result = next!(close_range(from: c_uint, last: c_uint, flags: c_int) -> c_int);
            if result != 0 {
                return result;
            }
        }
        from = fd + 1;
    }
    if from > last && first <= last {
        return 0;
    }
    next!(close_range(from: c_uint, last: c_uint, flags: c_int) -> c_int)
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if flags & libc::CLOSE_RANGE_CLOEXEC as c_int == 0 {
        for fd in descriptors::all().filter(|fd| (first..=last).contains(&(*fd as c_uint))) {
            let_go(fd);
        }
    }
    close_but_ours(first, last, flags)
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(first: c_int) {
    let first = first.max(0);
    for fd in descriptors::all().filter(|fd| *fd >= first) {
        let_go(fd);
    }
    close_but_ours(first as c_uint, c_uint::MAX, 0);
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
        listing::end(dir);
        // SAFETY: an open stream, as the program says.
        let_go(unsafe { libc::dirfd(dir) });
    }
    next!(closedir(dir: *mut libc::DIR) -> c_int)
}
