//! How long it pays to look for what comes next before going to sleep.

use std::sync::atomic::{AtomicU64, Ordering};

/// How long a thread looks for commands, ns, after the last one it found, at the most, before it sleeps. A
/// client that is woken by another program between two commands is away for two wake-ups, of 20 to 30 us
/// each where processors sleep when they are idle.
pub const POLL_NS: u64 = 100_000;
/// Where it was in vain the last times it looks for so much less.
const IN_VAIN: u64 = 20;

/// How long to look, as learned: where those who come are back soon, as long as may be; where they are not, a
/// twentieth of that.
#[derive(Debug)]
pub struct Learned {
    poll_ns: AtomicU64,
    poll_ns_max: u64,
}

impl Learned {
    /// Nothing is known yet: as long as may be, ns.
    #[must_use]
    pub const fn new(poll_ns_max: u64) -> Self {
        Self { poll_ns: AtomicU64::new(poll_ns_max), poll_ns_max }
    }

    /// How long to look, ns.
    pub fn poll_ns(&self) -> u64 {
        self.poll_ns.load(Ordering::Relaxed)
    }

    /// Notes that somebody has come so long, ns, after nobody looked any more: whether it would have paid to
    /// look for longer.
    pub fn note(&self, after_ns: u64) {
        let known = self.poll_ns();
        let now = if known.saturating_add(after_ns) < self.poll_ns_max {
            (known * 2).min(self.poll_ns_max)
        } else {
            (known / 2).max(self.poll_ns_max / IN_VAIN)
        };
        self.poll_ns.store(now, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long is looked once somebody has come back after `gap_ns` ten times.
    fn often(known_ns: u64, gap_ns: u64) -> u64 {
        let learned = Learned { poll_ns: AtomicU64::new(known_ns), poll_ns_max: POLL_NS };
        for _ in 0..10 {
            if let Some(after_ns) = gap_ns.checked_sub(learned.poll_ns()) {
                learned.note(after_ns);
            }
        }
        learned.poll_ns()
    }

    #[test]
    fn how_long_is_looked_is_learned_within_bounds() {
        assert_eq!(often(POLL_NS, 10_000_000), POLL_NS / IN_VAIN);
        for gap_ns in [0, 6_000, 20_000, 30_000, 45_000, 70_000, 95_000] {
            assert!((gap_ns + 1..=POLL_NS).contains(&often(POLL_NS / IN_VAIN, gap_ns)), "{gap_ns}");
        }
        assert_eq!(often(POLL_NS, POLL_NS + 1), POLL_NS / IN_VAIN);
    }
}
