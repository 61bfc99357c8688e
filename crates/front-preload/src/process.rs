//! Whose this process's memory is, and where descriptors of the library's own lie in it.
#![allow(unsafe_code)]

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use libc::c_int;

use crate::masked::MadeOnce;

/// The process that this memory belongs to; 0 before that was asked.
static OWNER: AtomicI32 = AtomicI32::new(0);
/// Whether another process may have this memory, or a copy of it that has not heard so: there was, or may
/// have been, a `vfork`, a `clone`, an `_Fork`. Where these are not seen, always.
static MAY_BE_ANOTHERS: AtomicBool = AtomicBool::new(!cfg!(target_arch = "x86_64"));

/// Whether this is the process that the memory belongs to, which it does from now on if it did to none.
pub fn own() -> bool {
    let this = rustix::process::getpid().as_raw_pid();
    match OWNER.load(Ordering::Relaxed) {
        0 => {
            OWNER.store(this, Ordering::Relaxed);
            true
        }
        owner => owner == this,
    }
}

/// In the child of a fork, which has a copy of its own.
pub fn in_child() {
    OWNER.store(0, Ordering::SeqCst);
}

/// The user as whom this process acts. It is asked once: who changes it is left to the kernel from then on
/// (`credentials.rs`).
pub fn user() -> rustix::process::Uid {
    static USER: MadeOnce<rustix::process::Uid> = MadeOnce::new();
    *USER.get_or_make(rustix::process::geteuid)
}

/// Before a child that gets this process's memory and does not go by [`in_child`].
pub fn before_unheard_child() {
    own();
    MAY_BE_ANOTHERS.store(true, Ordering::SeqCst);
}

/// Whether this is the process that began to use files of a mount, and not the child of a `vfork`, which has
/// its parent's memory but descriptors of its own. That is a system call only once there may be such a child.
pub fn is_own() -> bool {
    !MAY_BE_ANOTHERS.load(Ordering::Relaxed) || own()
}

/// Puts a descriptor of the library's own where programs do not look: a program counts on getting the lowest
/// numbers, and closes what it does not know.
pub fn out_of_the_way(fd: OwnedFd) -> OwnedFd {
    // SAFETY: a plain question.
    let most = unsafe { libc::sysconf(libc::_SC_OPEN_MAX) };
    let from = (most.clamp(64, 1 << 16) - 32) as c_int;
    rustix::io::fcntl_dupfd_cloexec(&fd, from).unwrap_or(fd)
}
