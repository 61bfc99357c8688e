//! What a fork does: the child has the descriptors, which are the kernel's, but neither the handles nor the lanes.
#![allow(unsafe_code)]

use std::sync::atomic::Ordering;

use amphi_rt::sync::Once;

use crate::{descriptors, mounts, report};

extern "C" fn before() {
    // From here on two processes move the offsets.
    descriptors::share_all();
}

extern "C" fn in_child() {
    mounts::GENERATION.fetch_add(1, Ordering::SeqCst);
    descriptors::forget_all();
    for mount in mounts::all() {
        mount.forget();
    }
}

/// Sees to forks and to the end of the program, from the first file of a mount on.
pub fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the functions live as long as the program. That one of them cannot be registered leaves a child without memory for it, which it
        // would notice before it forks.
        unsafe {
            libc::pthread_atfork(Some(before), None, Some(in_child));
            libc::atexit(report::tell);
        }
    });
}
