//! Host and device processors: how many, which one runs this task, and, in virtual time, what work costs.

use std::sync::OnceLock;

use crate::raw::in_sim;
use crate::sim::core::{Core, Wait};
use crate::time::Deadline;

/// The host: its processors and what work costs on them, in virtual time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostProfile {
    /// Number of processors.
    pub cores: usize,
    /// Time in ns from waking a blocked task until it runs.
    pub wake_ns: u64,
    /// Longest time in ns for which a task keeps a processor while others wait for one.
    pub slice_ns: u64,
}

impl Default for HostProfile {
    /// Eight processors on which nothing costs anything but what is charged explicitly.
    fn default() -> Self {
        Self { cores: 8, wake_ns: 0, slice_ns: 1_000_000 }
    }
}

/// Number of host processors that tasks run on.
#[must_use]
pub fn count() -> usize {
    // Asking the system reads control-group files: 20 us, too long for an allocator to do each time.
    static REAL: OnceLock<usize> = OnceLock::new();
    in_sim(|core| core.settings.host.cores.max(1))
        .unwrap_or_else(|| *REAL.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from)))
}

/// An index below [`count`] that tasks running at the same time tend not to share: the key of per-CPU structures.
#[must_use]
pub fn current() -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static SLOT: usize = NEXT.fetch_add(1, Ordering::Relaxed));
    in_sim(Core::current_processor).unwrap_or_else(|| SLOT.with(|slot| *slot) % count())
}

/// Charges `ns` of host CPU time to this task: it occupies a processor for so long, after waiting for one if all are busy. Free in
/// real time, where work takes the time it takes.
pub fn charge_ns(ns: u64) {
    in_sim(|core| core.charge(ns));
}

impl Core {
    fn current_processor(&self) -> usize {
        let state = self.state.borrow();
        state.tasks.get(self.current() as usize).map_or(0, |task| task.core)
    }

    fn charge(&self, mut ns: u64) {
        let slice = self.settings.host.slice_ns.max(1);
        while ns > 0 {
            let part = ns.min(slice);
            ns -= part;
            let end = {
                let state = &mut *self.state.borrow_mut();
                let task = &mut state.tasks[self.current() as usize];
                let free_at = &mut state.core_free_at;
                if free_at[task.core] > self.now() {
                    // Its own processor is busy: the one that is free first, the lowest of those.
                    task.core = (0..free_at.len()).min_by_key(|index| free_at[*index]).unwrap_or(0);
                }
                let start = free_at[task.core].max(self.now());
                let end = start + part;
                free_at[task.core] = end;
                if let Some(trace) = &mut state.trace {
                    trace.processor(task.core, start, end, task.id, &task.name);
                }
                end
            };
            self.sleep(Wait::Cpu, Deadline::at_ns(end));
        }
    }
}
