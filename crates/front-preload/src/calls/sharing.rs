//! Calls after which the queue no longer suits a descriptor: another process may move its offset, or the kernel keeps contents that the daemon does not
//! have.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;

use libc::{c_char, c_int, c_long, c_void, off_t, pid_t, size_t, ssize_t};

use rustix::fs::{AtFlags, StatxFlags, statx};

use super::let_go;
use crate::descriptors;
use crate::next::next;

/// A shared mapping that is written keeps contents in the kernel until the kernel writes them back.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    at: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    if flags & libc::MAP_ANONYMOUS == 0 && descriptors::get(fd).is_some() {
        // SAFETY: the program maps it, so it is open.
        let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
        // The kernel must know how far the file goes now: a fault behind what it knows of kills.
        let _ = statx(borrowed, "", AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC, StatxFlags::SIZE);
        if flags & libc::MAP_TYPE != libc::MAP_PRIVATE && protection & libc::PROT_WRITE != 0 {
            let_go(fd);
        }
    }
    // Not libc's own: allocators map before libc can say where that is.
    // SAFETY: what the program asks for.
    unsafe { libc::syscall(libc::SYS_mmap, at, len, protection, flags, fd, offset) as *mut c_void }
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    at: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: the same call.
    unsafe { mmap(at, len, protection, flags, fd, offset) }
}

macro_rules! control {
    ($($name:ident)*) => {$(
        /// Flags of an open file may change, and `F_DUPFD` is a [`dup`](super::closing::dup).
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(fd: c_int, command: c_int, argument: c_long) -> c_int {
            if matches!(command, libc::F_SETFL | libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
                let_go(fd);
            }
            next!($name(fd: c_int, command: c_int, argument: c_long) -> c_int)
        }
    )*};
}

control! { fcntl fcntl64 }

/// A message may carry descriptors.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmsg(socket: c_int, message: *const libc::msghdr, flags: c_int) -> ssize_t {
    // SAFETY: libc reads it alike.
    if unsafe { message.as_ref() }.is_some_and(|message| message.msg_controllen > 0) {
        descriptors::share_all();
    }
    next!(sendmsg(socket: c_int, message: *const libc::msghdr, flags: c_int) -> ssize_t)
}

macro_rules! spawning {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        /// The new program has descriptors of this one.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            descriptors::share_all();
            next!($name($($argument: $type),*) -> c_int)
        }
    )*};
}

type Words = *const *const c_char;

spawning! {
    posix_spawn(pid: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void, words: Words, environment: Words);
    posix_spawnp(pid: *mut pid_t, file: *const c_char, actions: *const c_void, attributes: *const c_void, words: Words, environment: Words);
    execve(path: *const c_char, words: Words, environment: Words);
    execv(path: *const c_char, words: Words);
    execvp(file: *const c_char, words: Words);
    execvpe(file: *const c_char, words: Words, environment: Words);
    fexecve(fd: c_int, words: Words, environment: Words);
    system(command: *const c_char);
}
