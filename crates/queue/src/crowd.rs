//! Whether others want the processor of a thread that looks at memory again and again.
//!
//! Where there are more such threads than processors, one that goes on looking keeps the one that it waits
//! for from running. Letting others run takes a system call, which tells by its duration who did: nobody, one
//! that soon let this thread run again, as the one that it waits for does, or one that has other things to
//! do. Such a one is better not given a turn before this thread has to sleep, which counts for it when it
//! wakes up.

use amphi_rt::{task, time};

/// Looks at the clock once in so many looks at the memory.
const LOOKS_PER_CLOCK: u32 = 64;
/// How long a thread looks, ns, before it lets others run in case there are any.
pub const ALONE_NS: u64 = 5_000;
/// Whoever lets others run and is back sooner, ns, was alone: the system call by itself takes 100 to 700.
const BACK_NS: u64 = 1_500;
/// Who keeps a processor for longer, ns, has other things to do.
const TURN_NS: u64 = 100_000;
/// How often at most a thread does not let such a one run before it tries again.
const KEEPS_MAX: u32 = 64;

/// What a thread has found out lately.
#[derive(Debug, Default)]
pub struct Crowd {
    /// Somebody ran when this thread last let them, and soon let it run again.
    takes_turns: bool,
    /// How often the processor is not given away yet.
    keeps: u32,
    /// How often it was not after the last one that kept it for long: twice as often after each in a row,
    /// since one alone may be a thread that has little to do.
    kept: u32,
}

impl Crowd {
    /// Whether somebody takes turns with this thread on its processor: then to look again is of no use
    /// before they had it.
    #[must_use]
    pub const fn takes_turns(&self) -> bool {
        self.takes_turns
    }

    /// Lets others run. False: not now, since they would keep the processor.
    pub fn make_way(&mut self) -> bool {
        if self.keeps > 0 {
            self.keeps -= 1;
            return false;
        }
        let begin_ns = time::now_ns();
        task::yield_now();
        self.learn(time::now_ns() - begin_ns);
        true
    }

    /// Looks for what `find` finds until it is there, `look_ns` at the most. Others get their turns.
    pub fn look<T>(&mut self, look_ns: u64, mut find: impl FnMut() -> Option<T>) -> Option<T> {
        if let Some(found) = find() {
            return Some(found);
        }
        if look_ns == 0 {
            return None;
        }
        let (mut begin_ns, mut way_ns) = (None, 0);
        loop {
            let looks = if self.takes_turns { 1 } else { LOOKS_PER_CLOCK };
            for _ in 0..looks {
                if let Some(found) = find() {
                    return Some(found);
                }
                std::hint::spin_loop();
            }
            // Most is there before the clock is looked at.
            let now_ns = time::now_ns();
            let spent_ns = now_ns - *begin_ns.get_or_insert(now_ns);
            if spent_ns >= look_ns {
                return find();
            }
            if self.takes_turns || spent_ns - way_ns > ALONE_NS {
                way_ns = spent_ns;
                self.make_way();
            }
        }
    }

    /// This thread had let others run for so long, ns.
    fn learn(&mut self, away_ns: u64) {
        self.takes_turns = away_ns > BACK_NS && away_ns <= TURN_NS;
        self.kept = if away_ns > TURN_NS { (2 * self.kept).clamp(1, KEEPS_MAX) } else { 0 };
        self.keeps = self.kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_other_things_to_do_is_given_no_turn_for_a_while() {
        let mut crowd = Crowd::default();
        crowd.learn(BACK_NS);
        assert!(!crowd.takes_turns(), "nobody");
        assert!(crowd.make_way());
        crowd.learn(2 * BACK_NS);
        assert!(crowd.takes_turns(), "one that waits for this one");
        assert!(crowd.make_way());
        // Who ran just now is not known.
        crowd.learn(0);
        for kept in [1, 2, 4, 8, 16, 32, 64, 64] {
            crowd.learn(TURN_NS + 1);
            assert!(!crowd.takes_turns());
            assert!((0..kept).all(|_| !crowd.make_way()), "{kept}");
            assert_eq!(crowd.keeps, 0, "then it is tried again");
        }
        crowd.learn(BACK_NS);
        crowd.learn(TURN_NS + 1);
        assert!(!crowd.make_way());
        assert_eq!(crowd.keeps, 0, "one that keeps it once is soon forgotten");
    }
}
