//! Host and device processors: how many, which one runs this task, and, in virtual time, what work costs.

use std::sync::OnceLock;

pub use crate::host::{HostProfile, ProfileError, Work};
use crate::raw::in_sim;
use crate::sim::core::Core;
use crate::sim::task::Wait;
use crate::time::{Deadline, now_ns, sleep_until_ns};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Number of host processors that tasks run on.
#[must_use]
pub fn count() -> usize {
    in_sim(|core| core.settings.host.cores.max(1)).unwrap_or_else(real_count)
}

fn real_count() -> usize {
    // Asking the system reads control-group files: 20 us, too long for an allocator to do each time.
    static REAL: OnceLock<usize> = OnceLock::new();
    *REAL.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// An index below [`count`] that tasks running at the same time tend not to share: the key of per-CPU
/// structures.
#[must_use]
pub fn current() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static SLOT: usize = NEXT.fetch_add(1, Ordering::Relaxed) % real_count());
    in_sim(Core::current_processor).unwrap_or_else(|| SLOT.with(|slot| *slot))
}

/// Charges `ns` of host CPU time to this task: it occupies a processor for so long, after waiting for one if
/// all are busy. Free in real time, where work takes the time it takes.
#[inline]
pub fn charge_ns(ns: u64) {
    in_sim(|core| core.charge(ns));
}

/// Charges what the Sim's [`HostProfile`] asks for this work. Free in real time.
#[inline]
pub fn charge(work: Work) {
    in_sim(|core| core.charge(core.settings.host.cost_ns(work)));
}

/// Processors of a device: each does one thing at a time. Works in both worlds, on [`now_ns`]; in real time
/// nobody computes for so long, it is the completion that comes so late.
#[derive(Debug)]
pub struct Processors {
    name: String,
    /// When each is free, in ns. Held for a moment only, never across a wait.
    free_at: parking_lot::Mutex<Vec<u64>>,
    busy_ns: AtomicU64,
}

impl Processors {
    /// So many idle processors, at least one. `name` appears in traces.
    #[must_use]
    pub fn new(name: &str, count: usize) -> Self {
        Self {
            name: name.to_owned(),
            free_at: parking_lot::Mutex::new(vec![0; count.max(1)]),
            busy_ns: AtomicU64::new(0),
        }
    }

    /// Occupies the processor that is free first for `ns`, from `earliest_ns` or later, and returns when it
    /// will be done. Does not wait: a caller may overlap other work and wait with [`sleep_until_ns`].
    pub fn reserve_from_ns(&self, earliest_ns: u64, ns: u64) -> u64 {
        let mut free_at = self.free_at.lock();
        let index = (0..free_at.len()).min_by_key(|index| free_at[*index]).unwrap_or(0);
        let start = free_at[index].max(earliest_ns);
        let end = start.saturating_add(ns);
        free_at[index] = end;
        drop(free_at);
        self.busy_ns.fetch_add(ns, Ordering::Relaxed);
        in_sim(|core| core.trace(|trace, task| trace.device(&self.name, index, start, end, task)));
        end
    }

    /// As [`Processors::reserve_from_ns`], from now.
    pub fn reserve_ns(&self, ns: u64) -> u64 {
        self.reserve_from_ns(now_ns(), ns)
    }

    /// Occupies a processor for `ns` and waits until it is done.
    pub fn run_ns(&self, ns: u64) {
        sleep_until_ns(self.reserve_ns(ns));
    }

    /// Time for which the processors have been or are promised to be busy, in ns, summed over all of them.
    #[must_use]
    pub fn busy_ns(&self) -> u64 {
        self.busy_ns.load(Ordering::Relaxed)
    }
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
                    trace.device("host processors", task.core, start, end, (task.id, &task.name));
                }
                end
            };
            self.sleep(Wait::Cpu, Deadline::at_ns(end));
        }
    }
}
