//! Host and device processors: how many, which one runs this task, and, in virtual time, what work costs.

use std::sync::OnceLock;

use crate::raw::in_sim;
use crate::sim::core::{Core, Wait};
use crate::time::{Deadline, now_ns, sleep_until_ns};
use serde::Deserialize;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use thiserror::Error;

/// The host: its processors and what work costs on them, in virtual time. Times are ns unless the name says
/// otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HostProfile {
    /// Number of processors, at least 1.
    pub cores: usize,
    /// From waking a blocked task until it runs.
    pub wake_ns: u64,
    /// Longest time for which a task keeps a processor while others wait for one.
    pub slice_ns: u64,
    /// A system call that does nothing.
    pub syscall_ns: u64,
    /// Copying a byte that is not in the cache, in picoseconds.
    pub copy_ps_per_byte: u64,
    /// Writing a cache line back to memory.
    pub flush_line_ns: u64,
    /// Waiting until stores and write-backs have reached memory.
    pub fence_ns: u64,
}

impl Default for HostProfile {
    /// Eight processors on which nothing costs anything but what [`charge_ns`] charges.
    fn default() -> Self {
        Self {
            cores: 8,
            wake_ns: 0,
            slice_ns: 1_000_000,
            syscall_ns: 0,
            copy_ps_per_byte: 0,
            flush_line_ns: 0,
            fence_ns: 0,
        }
    }
}

/// Why a host profile was not taken.
#[derive(Debug, Error)]
pub enum ProfileError {
    /// It is not TOML, or has a field that is not a host profile's.
    #[error("the host profile cannot be read: {0}")]
    Syntax(#[from] toml::de::Error),
    /// A value that no machine has.
    #[error("the host profile has no processors: set `cores` to at least 1")]
    NoCores,
}

impl HostProfile {
    /// Reads a profile such as `profiles/host-dev.toml`. What it does not name costs nothing.
    ///
    /// # Errors
    /// If it is not TOML, names a field that does not exist, or has no processors.
    pub fn from_toml(text: &str) -> Result<Self, ProfileError> {
        let profile: Self = toml::from_str(text)?;
        if profile.cores == 0 {
            return Err(ProfileError::NoCores);
        }
        Ok(profile)
    }

    /// The two-core machine that Amphi is developed on, as measured there.
    ///
    /// # Panics
    /// Never: the profile is part of the program and tested.
    #[must_use]
    pub fn dev() -> Self {
        Self::from_toml(include_str!("../../../profiles/host-dev.toml"))
            .expect("the built-in profile is well-formed")
    }

    /// What `work` costs in ns.
    #[must_use]
    pub fn cost_ns(&self, work: Work) -> u64 {
        match work {
            Work::Syscall => self.syscall_ns,
            Work::Copy { bytes } => bytes.saturating_mul(self.copy_ps_per_byte) / 1000,
            Work::FlushLines { lines } => lines.saturating_mul(self.flush_line_ns),
            Work::Fence => self.fence_ns,
        }
    }
}

/// Work that a host profile has a price for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Entering and leaving the kernel.
    Syscall,
    /// Copying so many bytes.
    Copy {
        /// Number of bytes.
        bytes: u64,
    },
    /// Writing so many cache lines back.
    FlushLines {
        /// Number of 64-byte lines.
        lines: u64,
    },
    /// A store fence.
    Fence,
}

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
