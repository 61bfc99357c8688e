//! What a fork does: the child has the descriptors, which are the kernel's, but neither the handles nor the
//! lanes.
#![allow(unsafe_code)]

use std::sync::atomic::Ordering;

use amphi_front_shared::signals;
use amphi_rt::sync::Once;

use crate::{descriptors, mounts, placeholder, process, report};

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
    process::in_child();
    report::in_child();
    mounts::GENERATION.fetch_add(1, Ordering::SeqCst);
    descriptors::forget_all();
    for mount in mounts::all() {
        mount.forget();
    }
}

/// The program ends: threads that are inside of a range would end there.
pub extern "C" fn end() {
    mounts::leave();
    if process::is_own() {
        report::tell(if mounts::has_range() { "range" } else { "queue" });
    }
}

/// Sees to forks and to the end of the program, from the first file of a mount on. Signals wait meanwhile.
pub fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Asked by this process, and not by the child of a `vfork` first.
        process::own();
        report::begin();
        // A clock that begins when it is asked first.
        let _now = amphi_rt::time::now_ns();
        // SAFETY: the functions live as long as the program. That one of them cannot be registered leaves a
        // child without memory for it, which it would notice before it forks.
        unsafe {
            libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child));
            libc::atexit(end);
        }
    });
}
