//! The clock for time stamps, which never goes back while the file system is mounted.

use std::sync::atomic::{AtomicI64, Ordering};

use amphi_rt::time;

/// A step back shorter than this is not noticed, 1 ms: clocks that are set by less are slowed down instead.
/// So the processors share no line that each of them writes with every operation.
const GRAIN_NS: i64 = 1_000_000;

/// The clock.
pub struct Clock {
    /// Times are multiples of this, ns.
    tick_ns: i64,
    /// [`GRAIN_NS`] in whole ticks.
    grain_ns: i64,
    /// No time that was told is later.
    ceiling: AtomicI64,
    /// No time that will be told is earlier: the ceiling when the system's clock was last seen to be set
    /// back.
    floor: AtomicI64,
}

impl Clock {
    /// A clock that shows multiples of `tick_ns` nanoseconds.
    pub fn new(tick_ns: i64) -> Self {
        Self::starting(tick_ns, time::wall_ns())
    }

    fn starting(tick_ns: i64, wall_ns: i64) -> Self {
        let tick_ns = tick_ns.max(1);
        Self {
            tick_ns,
            grain_ns: (GRAIN_NS as u64).next_multiple_of(tick_ns as u64) as i64,
            ceiling: AtomicI64::new(wall_ns - wall_ns.rem_euclid(tick_ns)),
            floor: AtomicI64::new(i64::MIN),
        }
    }

    /// The current time, ns since 1970. While the system's clock is behind what was told before, time stands
    /// still.
    #[inline]
    pub fn now(&self) -> i64 {
        self.at(time::wall_ns())
    }

    #[inline]
    fn at(&self, wall_ns: i64) -> i64 {
        let now = if self.tick_ns == 1 { wall_ns } else { wall_ns - wall_ns.rem_euclid(self.tick_ns) };
        let floor = self.floor.load(Ordering::Relaxed);
        if now < floor {
            return floor;
        }
        let ceiling = self.ceiling.load(Ordering::Relaxed);
        if now > ceiling {
            self.ceiling.fetch_max(now + self.grain_ns, Ordering::Relaxed);
        } else if now < ceiling - self.grain_ns {
            self.floor.fetch_max(ceiling, Ordering::Relaxed);
            return ceiling;
        }
        now
    }

    /// A time near the last one that was told: cheaper, and near enough to tell days apart.
    #[inline]
    pub fn recent(&self) -> i64 {
        self.ceiling.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_NS: i64 = 3_600_000_000_000;

    #[test]
    fn a_clock_that_is_set_back_stands_still() {
        let clock = Clock::starting(1, 0);
        let last = HOUR_NS + GRAIN_NS - 1;
        let wall = [HOUR_NS, HOUR_NS + 5, last, 10, 11, HOUR_NS - 1, last - 5, last + 5];
        let told = wall.map(|wall| clock.at(wall));
        assert_eq!(told[..3], wall[..3]);
        assert!(told.is_sorted(), "{told:?}");
        assert_eq!(clock.at(2 * HOUR_NS), 2 * HOUR_NS, "it goes on once the system's has caught up");
    }

    #[test]
    fn times_are_multiples_of_the_tick() {
        let tick = 4_000_000;
        let clock = Clock::starting(tick, 5);
        let told = [9_999_999, 8_000_001, 12_000_000, 30_000_000, 29_000_000, 5_000_000, 32_000_000]
            .map(|wall| clock.at(wall));
        assert_eq!(told[..4], [2 * tick, 2 * tick, 3 * tick, 7 * tick]);
        assert!(told.is_sorted() && told.iter().all(|time| time % tick == 0), "{told:?}");
    }
}
