//! Host and device processors: how many, which one runs this task, and, in virtual time, what work costs.

/// Number of host processors that tasks run on.
#[must_use]
pub fn count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// An index below [`count`] that tasks running at the same time tend not to share: the key of per-CPU structures.
#[must_use]
pub fn current() -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static SLOT: usize = NEXT.fetch_add(1, Ordering::Relaxed));
    SLOT.with(|slot| *slot) % count()
}

/// Charges `ns` of host CPU time to this task. Free in real time, where work takes the time it takes.
pub fn charge_ns(ns: u64) {
    let _ = ns;
}
