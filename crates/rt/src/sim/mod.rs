//! Virtual time: a world in which one seed decides everything.

mod blocking;
mod clock;
pub(crate) mod core;
mod ending;
mod explore;
pub(crate) mod failure;
mod queue;
mod report;
mod running;
mod schedule;
mod stacks;
pub(crate) mod task;
mod timer;
mod trace_file;
mod waiters;
mod watchdog;

use crate::host::HostProfile;
use crate::raw;
use core::{Core, Settings};
pub use explore::{Explore, Found};
pub use failure::{Failure, FailureKind};
use schedule::Policy;
pub use schedule::Schedule;
use std::path::{Path, PathBuf};
use std::time::Duration;
use trace_file::Trace;

/// A virtual world: what runs inside [`Sim::run`] has its own clock, its own processors and its own chance,
/// all decided by a seed.
///
/// Tasks are coroutines on the calling OS thread. The clock moves only when everybody waits, and then at
/// once.
#[derive(Debug, Clone)]
pub struct Sim {
    settings: Settings,
    schedule: Schedule,
    trace: Option<PathBuf>,
}

impl Sim {
    /// A world decided by `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            settings: Settings {
                seed,
                stack_bytes: 512 << 10,
                time_limit_ns: 24 * 3600 * 1_000_000_000,
                livelock_yields: 20_000_000,
                host: HostProfile::default(),
                blocking_limit: (cfg!(debug_assertions) && !cfg!(miri)).then_some(Duration::from_secs(5)),
            },
            schedule: Schedule::Seeded,
            trace: None,
        }
    }

    /// The host's processors and what work costs on them.
    #[must_use]
    pub fn host(mut self, host: HostProfile) -> Self {
        self.settings.host = host;
        self
    }

    /// How tasks are chosen that can run at the same instant.
    #[must_use]
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedule = schedule;
        self
    }

    /// Bytes of stack per task, 512 KiB unless told. Only pages that a task touches take memory.
    #[must_use]
    pub fn stack_bytes(mut self, bytes: usize) -> Self {
        self.settings.stack_bytes = bytes;
        self
    }

    /// Virtual time in ns after which the Sim fails, 24 hours unless told: finds worlds in which only a
    /// periodic task still runs.
    #[must_use]
    pub fn time_limit_ns(mut self, ns: u64) -> Self {
        self.settings.time_limit_ns = ns;
        self
    }

    /// Calls of [`crate::task::yield_now`] in a row, with nothing else happening and nobody asleep, after
    /// which the Sim fails with a livelock; 20 million (about a second) unless told. In a search, points
    /// count too.
    #[must_use]
    pub fn livelock_after(mut self, yields: u64) -> Self {
        self.settings.livelock_yields = yields;
        self
    }

    /// Real time for which a task may block the OS thread (in a foreign lock, a read, a child process) before
    /// the Sim fails; `None` not to watch. 5 s unless told in builds with debug assertions, otherwise `None`.
    /// A thread that never comes back is reported on stderr, and the process aborted after 12 times the
    /// limit.
    #[must_use]
    pub fn blocking_limit(mut self, limit: Option<Duration>) -> Self {
        self.settings.blocking_limit = limit;
        self
    }

    /// Writes what happened to `path` in Chrome's trace format, which <https://ui.perfetto.dev> shows. The
    /// same seed writes the same bytes.
    #[must_use]
    pub fn trace(mut self, path: impl AsRef<Path>) -> Self {
        self.trace = Some(path.as_ref().to_owned());
        self
    }

    /// Runs `main` as the first task and returns its value. Tasks that still exist then are unwound.
    ///
    /// # Panics
    /// If a task panics, or on deadlock, livelock or the time limit: with the seed, the virtual time, and who
    /// waits for whom.
    #[track_caller]
    pub fn run<T>(&self, main: impl FnOnce() -> T) -> T {
        match self.try_run(main) {
            Ok(value) => value,
            Err(failure) => panic!("{failure}"),
        }
    }

    /// As [`Sim::run`], with the failure as a value.
    ///
    /// # Errors
    /// How the Sim failed.
    pub fn try_run<T>(&self, main: impl FnOnce() -> T) -> Result<T, Failure> {
        self.execute(main).0
    }

    /// Runs `main`; besides its value, the number of points passed.
    fn execute<T>(&self, main: impl FnOnce() -> T) -> (Result<T, Failure>, u64) {
        ending::install_hook();
        let policy = Policy::new(self.schedule, self.settings.seed);
        let trace = self.trace.as_ref().map(|_| Trace::new(self.settings.seed));
        let core = Core::new(self.settings.clone(), policy, trace);
        let (failure, value) = raw::run_main(&core, main);
        if let (Some(path), Some(trace)) = (&self.trace, core.take_trace()) {
            trace
                .write(path)
                .unwrap_or_else(|cause| panic!("cannot write the trace {}: {cause}", path.display()));
        }
        let result = match (failure, value) {
            (Some(failure), _) => Err(failure),
            (None, Some(value)) => Ok(value),
            (None, None) => unreachable!("a main task that did not end is a failure"),
        };
        (result, core.points())
    }
}
