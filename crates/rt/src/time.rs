//! Clocks and sleeping. All values are nanoseconds.

pub use crate::deadline::Deadline;
use crate::raw::in_sim;
use crate::sim::core::Core;
use crate::sim::task::Wait;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Wall-clock time at which every Sim begins: 2026-01-01 00:00 UTC.
const SIM_EPOCH_NS: i64 = 1_767_225_600_000_000_000;

/// Monotonic time in ns since an arbitrary start (the start of the Sim, in virtual time).
#[must_use]
pub fn now_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    in_sim(Core::now).unwrap_or_else(|| START.get_or_init(Instant::now).elapsed().as_nanos() as u64)
}

/// Wall-clock time in ns since 1970, for time stamps. In virtual time: a fixed date plus [`now_ns`].
#[must_use]
pub fn wall_ns() -> i64 {
    in_sim(|core| SIM_EPOCH_NS + core.now() as i64)
        .unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as i64))
}

/// Sleeps for `ns`.
#[inline]
pub fn sleep_ns(ns: u64) {
    sleep_until_ns(now_ns().saturating_add(ns));
}

/// Sleeps until [`now_ns`] reaches `deadline_ns`; returns at once if it has. In real time the last stretch is
/// spun, so that microsecond waits are kept to a fraction of a microsecond.
#[inline]
pub fn sleep_until_ns(deadline_ns: u64) {
    if in_sim(|core| core.sleep(Wait::Sleep, Deadline::at_ns(deadline_ns))).is_none() {
        sleep_thread_until_ns(deadline_ns);
    }
}

fn sleep_thread_until_ns(deadline_ns: u64) {
    // Linux wakes a sleeper up to 50 us late by default (timer slack), and a virtual machine's processor
    // another 20 to 70.
    const SPIN_NS: u64 = 120_000;
    loop {
        let now = now_ns();
        if now >= deadline_ns {
            return;
        }
        let left = deadline_ns - now;
        if left > SPIN_NS {
            std::thread::sleep(Duration::from_nanos(left - SPIN_NS));
        } else {
            std::hint::spin_loop();
        }
    }
}

impl Deadline {
    /// `timeout` from now.
    #[must_use]
    pub fn after(timeout: Duration) -> Self {
        Self::at_ns(u64::try_from(timeout.as_nanos()).map_or(u64::MAX, |ns| now_ns().saturating_add(ns)))
    }

    /// What is left until then; `None` if it never comes.
    #[must_use]
    pub fn left(self) -> Option<Duration> {
        (self != Self::NEVER).then(|| Duration::from_nanos(self.ns().saturating_sub(now_ns())))
    }

    /// What is left until then; a century if it never comes.
    pub(crate) fn left_or_ages(self) -> Duration {
        self.left().unwrap_or(Duration::from_secs(100 * 365 * 86_400))
    }
}
