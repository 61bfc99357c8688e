//! Clocks and sleeping. All values are nanoseconds.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Monotonic time in ns since an arbitrary start (the start of the Sim, in virtual time).
#[must_use]
pub fn now_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Wall-clock time in ns since 1970, for time stamps. In virtual time: a fixed date plus [`now_ns`].
#[must_use]
pub fn wall_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as i64)
}

/// Sleeps for `ns`.
pub fn sleep_ns(ns: u64) {
    sleep_until_ns(now_ns() + ns);
}

/// Sleeps until [`now_ns`] reaches `deadline_ns`; returns at once if it has. In real time the last stretch is spun,
/// so that microsecond waits are kept to a fraction of a microsecond.
pub fn sleep_until_ns(deadline_ns: u64) {
    const SPIN_NS: u64 = 60_000;
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
