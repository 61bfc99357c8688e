//! A die's timeline: one operation at a time, except that programs of different planes which are waiting
//! anyway are carried out together.

use std::sync::atomic::{AtomicU64, Ordering};

/// A die. In its word, the moment until which it is booked, and below that the planes of the last booked
/// program, 0 if that was anything else.
#[derive(Debug, Default)]
pub(super) struct Die(AtomicU64);

/// Planes of a die at most: bits below the moment, which leaves 800 days.
const PLANES: u32 = 8;

impl Die {
    /// Books `ns` from `earliest` or later; answers when the booking ends.
    pub(super) fn book(&self, earliest: u64, ns: u64) -> u64 {
        self.change(|busy, _| (busy.max(earliest) + ns, 0))
    }

    /// Books a program of `ns` on a plane. It joins the last booked program if that is of other planes and
    /// has not begun at `earliest`.
    pub(super) fn program(&self, earliest: u64, ns: u64, plane: u64) -> u64 {
        self.change(|busy, planes| {
            if planes != 0 && planes >> plane & 1 == 0 && earliest + ns <= busy {
                (busy, planes | 1 << plane)
            } else {
                (busy.max(earliest) + ns, 1 << plane)
            }
        })
    }

    fn change(&self, change: impl Fn(u64, u64) -> (u64, u64)) -> u64 {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            let (until, planes) = change(word >> PLANES, word & ((1 << PLANES) - 1));
            match self.0.compare_exchange_weak(
                word,
                until << PLANES | planes,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return until,
                Err(now) => word = now,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_different_planes_that_wait_are_one() {
        let die = Die::default();
        assert_eq!(die.program(0, 60, 0), 60);
        assert_eq!(die.program(0, 60, 1), 60, "the other plane at the same time");
        assert_eq!(die.program(0, 60, 0), 120, "a plane programs one page at a time");
        assert_eq!(die.program(70, 60, 1), 180, "the one before has begun");
        assert_eq!(die.book(0, 40), 220);
        assert_eq!(die.program(0, 60, 1), 280, "a read is not a program");
        assert_eq!(die.program(0, 60, 0), 280);
    }
}
