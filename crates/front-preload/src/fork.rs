//! What a fork does: the child has the descriptors, which are the kernel's, but neither the handles nor the
//! lanes.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use amphi_front_shared::signals;
use amphi_rt::sync::Once;

use crate::{descriptors, mounts, placeholder, report};

extern "C" fn before() {
    placeholder::before_fork();
    // From here on two processes move the offsets.
    descriptors::share_all();
}

extern "C" fn in_parent() {
    placeholder::after_fork();
}

extern "C" fn in_child() {
    placeholder::in_child();
    signals::in_child();
    OWNER.store(0, Ordering::SeqCst);
    mounts::GENERATION.fetch_add(1, Ordering::SeqCst);
    descriptors::forget_all();
    for mount in mounts::all() {
        mount.forget();
    }
}

/// The process that this memory belongs to; 0 before that was asked.
static OWNER: AtomicI32 = AtomicI32::new(0);
/// Whether another process may have this memory, or a copy of it that has not heard so: there was, or may
/// have been, a `vfork`, a `clone`, an `_Fork`. Where these are not seen, always.
static MAY_BE_ANOTHERS: AtomicBool = AtomicBool::new(!cfg!(target_arch = "x86_64"));

/// Before a child that gets this process's memory and does not go by [`in_child`].
pub fn before_unheard_child() {
    own();
    MAY_BE_ANOTHERS.store(true, Ordering::SeqCst);
}

/// Whether this is the process that the memory belongs to, which it does from now on if it did to none.
fn own() -> bool {
    let this = rustix::process::getpid().as_raw_pid();
    match OWNER.load(Ordering::Relaxed) {
        0 => {
            OWNER.store(this, Ordering::Relaxed);
            true
        }
        owner => owner == this,
    }
}

/// Whether this is the process that began to use files of a mount, and not the child of a `vfork`, which has
/// its parent's memory but descriptors of its own. That is a system call only once there may be such a child.
pub fn is_own_process() -> bool {
    !MAY_BE_ANOTHERS.load(Ordering::Relaxed) || own()
}

/// The program ends: threads that are inside of a range would end there.
extern "C" fn end() {
    mounts::leave();
    report::tell();
}

/// Sees to forks and to the end of the program, from the first file of a mount on.
pub fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Asked by this process, and not by the child of a `vfork` first.
        own();
        // SAFETY: the functions live as long as the program. That one of them cannot be registered leaves a
        // child without memory for it, which it would notice before it forks.
        unsafe {
            libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child));
            libc::atexit(end);
        }
    });
}
