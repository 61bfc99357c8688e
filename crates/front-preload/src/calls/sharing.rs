//! Calls after which the queue no longer suits a descriptor: another process may move its offset, or the
//! kernel keeps contents that the daemon does not have.
#![allow(unsafe_code)]

use std::os::fd::BorrowedFd;

use libc::{c_char, c_int, c_long, c_void, off_t, pid_t, size_t, ssize_t};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

use super::{copied, leave_to_kernel};
use crate::descriptors::{self, PLACEHOLDER};
use crate::errno::fail;
use crate::inherited::{Words, completed};
use crate::next::next;
use crate::pointers::may_be;
use crate::{fork, mapped, mounts, placeholder};

/// A shared mapping that is written keeps contents in the kernel until the kernel writes them back: see
/// [`mapped`].
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
    if flags & libc::MAP_ANONYMOUS == 0 {
        if let Err(errno) = placeholder::make_real(fd) {
            fail(errno);
            return libc::MAP_FAILED;
        }
        // A fault behind what the kernel knows of kills.
        descriptors::let_kernel_know(fd);
        let changes_file = flags & libc::MAP_TYPE != libc::MAP_PRIVATE && protection & libc::PROT_WRITE != 0;
        if changes_file && fd >= 0 && mounts::are_there() {
            for other in mapped::note(fd) {
                if let Err(errno) = leave_to_kernel(other) {
                    fail(errno);
                    return libc::MAP_FAILED;
                }
            }
        }
    }
    // Not libc's own: allocators map before libc can say where that is.
    let (protection, kind) =
        (ProtFlags::from_bits_retain(protection as u32), MapFlags::from_bits_retain(flags as u32));
    // SAFETY: what the program asks for.
    let mapped = unsafe {
        if flags & libc::MAP_ANONYMOUS != 0 {
            mmap_anonymous(at, len, protection, kind)
        } else if fd < 0 {
            Err(Errno::BADF)
        } else {
            rustix::mm::mmap(at, len, protection, kind, BorrowedFd::borrow_raw(fd), offset as u64)
        }
    };
    mapped.unwrap_or_else(|error| {
        fail(error.raw_os_error());
        libc::MAP_FAILED
    })
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

/// What the queue knows of a descriptor that `fcntl` asks about; none if the kernel is to be asked.
fn control(fd: c_int, command: c_int) -> Option<c_int> {
    let opened = descriptors::get(fd)?;
    let is_placeholder = opened.flags & PLACEHOLDER != 0;
    match command {
        // The number is the kernel's.
        libc::F_GETFD | libc::F_SETFD => None,
        libc::F_GETFL if is_placeholder => descriptors::unopened(fd).map(|(unopened, _)| unopened.status),
        libc::F_SETFL => leave_to_kernel(fd).err().map(|errno| fail(errno) as c_int),
        _ => placeholder::make_real(fd).err().map(|errno| fail(errno) as c_int),
    }
}

/// Whether what `fcntl` asks for is a lock of a range that is counted from the file's end.
///
/// # Safety
/// `argument` is what the command takes.
unsafe fn counts_from_end(command: c_int, argument: c_long) -> bool {
    let is_lock = matches!(
        command,
        libc::F_GETLK
            | libc::F_SETLK
            | libc::F_SETLKW
            | libc::F_OFD_GETLK
            | libc::F_OFD_SETLK
            | libc::F_OFD_SETLKW
    );
    let lock = argument as *const libc::flock;
    // SAFETY: the caller's.
    is_lock && may_be(lock, size_of::<libc::flock>()) && unsafe { (*lock).l_whence } == libc::SEEK_END as i16
}

macro_rules! controls {
    ($($name:ident)*) => {$(
        /// See `control`.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(fd: c_int, command: c_int, argument: c_long) -> c_int {
            if matches!(command, libc::F_SETLK | libc::F_SETLKW) {
                placeholder::no_more();
            }
            let next = || next!($name(fd: c_int, command: c_int, argument: c_long) -> c_int);
            if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) && descriptors::get(fd).is_some() {
                return copied(fd, next);
            }
            control(fd, command).unwrap_or_else(|| {
                // SAFETY: as the program says.
                if unsafe { counts_from_end(command, argument) } {
                    descriptors::let_kernel_know(fd);
                }
                next()
            })
        }
    )*};
}

controls! { fcntl fcntl64 }

/// A message may carry descriptors.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmsg(socket: c_int, message: *const libc::msghdr, flags: c_int) -> ssize_t {
    // SAFETY: libc reads it alike.
    if unsafe { message.as_ref() }.is_some_and(|message| message.msg_controllen > 0) {
        placeholder::make_all_real(true);
        descriptors::share_all();
    }
    next!(sendmsg(socket: c_int, message: *const libc::msghdr, flags: c_int) -> ssize_t)
}

/// What another program may see of this one's descriptors is the kernel's, until it was spawned.
fn before_spawn() -> placeholder::Spawning {
    let spawning = placeholder::before_spawn();
    descriptors::share_all();
    spawning
}

/// Runs `act` with the environment that the new program shall have.
///
/// # Safety
/// `environment` is null or ends with a null.
unsafe fn with_environment(environment: Words, act: impl FnOnce(Words) -> c_int) -> c_int {
    // SAFETY: the caller's.
    let completed = unsafe { completed(environment) };
    act(if completed.is_empty() { environment } else { completed.as_ptr() })
}

macro_rules! spawning {
    ($($name:ident)*) => {$(
        /// The new program has descriptors of this one.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            pid: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void,
            words: Words, environment: Words,
        ) -> c_int {
            let _spawning = before_spawn();
            let spawn = |environment: Words| {
                next!($name(pid: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void, words: Words, environment: Words) -> c_int)
            };
            // SAFETY: as the program says; so in all of these.
            unsafe { with_environment(environment, spawn) }
        }
    )*};
}

spawning! { posix_spawn posix_spawnp }

macro_rules! executing {
    ($($name:ident($first:ident: $type:ty);)*) => {$(
        /// The program that takes this one's place has its descriptors.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($first: $type, words: Words, environment: Words) -> c_int {
            // Those that close at the `exec` nobody sees.
            placeholder::make_all_real(false);
            descriptors::share_all();
            mounts::leave();
            let execute = |environment: Words| {
                next!($name($first: $type, words: Words, environment: Words) -> c_int)
            };
            // SAFETY: see `posix_spawn`.
            unsafe { with_environment(environment, execute) }
        }
    )*};
}

executing! {
    execve(path: *const c_char);
    execvpe(file: *const c_char);
    fexecve(fd: c_int);
}

unsafe extern "C" {
    static environ: Words;
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(path: *const c_char, words: Words) -> c_int {
    // SAFETY: the same call.
    unsafe { execve(path, words, environ) }
}

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(file: *const c_char, words: Words) -> c_int {
    // SAFETY: the same call.
    unsafe { execvpe(file, words, environ) }
}

macro_rules! ending {
    ($($name:ident)*) => {$(
        /// The end of a program without what it does at its end.
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(status: c_int) -> c_int {
            fork::end();
            next!($name(status: c_int) -> c_int)
        }
    )*};
}

ending! { _exit _Exit }

/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn system(command: *const c_char) -> c_int {
    let _spawning = before_spawn();
    next!(system(command: *const c_char) -> c_int)
}
