//! What a fork does: the child has the memory of a way to a file system, but it is not its own. Two processes
//! in one lane would answer each other's commands, and two with one image would both write it.

use std::sync::atomic::{AtomicU32, Ordering};

use amphi_rt::sync::Once;

static GENERATION: AtomicU32 = AtomicU32::new(0);

extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::SeqCst);
}

/// How often this memory became another process's.
pub fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Sees to forks, from the first file system on.
pub fn prepare() {
    static ONCE: Once = Once::new();
    // SAFETY: the function lives as long as the program (a library with thread-locals is not unloaded). That
    // it cannot be registered leaves no memory for a child either.
    ONCE.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(in_child));
    });
}
