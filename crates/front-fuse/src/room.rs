//! Room that is on its way back.
//!
//! A removed file's blocks are free when nobody uses it any more. The kernel tells that in a request of its own, `FORGET`, after `unlink` has returned, and the thread that
//! has read it may be behind the one that serves the next write. Somebody who has made room by removing a file must find it, so what finds none is tried again before
//! it is refused, and who asks right then how much there is waits for it.

use std::sync::atomic::{AtomicU64, Ordering};

use amphi_rt::time;
use amphi_vfs::{Error, Result};

/// A thread that has read a request is behind by as much as the scheduler makes it wait.
const PAUSES_NS: [u64; 3] = [1_000_000, 5_000_000, 20_000_000];

/// Does `operation`, and again a little later while it finds no room.
///
/// # Errors
/// As `operation`.
pub(crate) fn with_room<T>(mut operation: impl FnMut() -> Result<T>) -> Result<T> {
    let mut outcome = operation();
    for pause_ns in PAUSES_NS {
        if !matches!(outcome, Err(Error::NoSpace | Error::NoInodes)) {
            break;
        }
        time::sleep_ns(pause_ns);
        outcome = operation();
    }
    outcome
}

/// Who asks how much room there is waits less: the file may be open for long.
const SETTLING_NS: [u64; 2] = [200_000, 1_000_000];

/// For how long after a removal the kernel may be about to forget what was removed. Who keeps a file open for longer finds its room a moment late.
const LATELY_NS: u64 = 100_000_000;

/// What was removed lately, and whether the kernel has forgotten anything since.
#[derive(Debug, Default)]
pub(crate) struct Removals {
    /// Inodes that the kernel has forgotten so far.
    forgotten: AtomicU64,
    /// How many those were at the last removal.
    forgotten_then: AtomicU64,
    /// When that was, in ns; 0: never.
    last_ns: AtomicU64,
}

impl Removals {
    /// A file or directory has lost its last name.
    pub(crate) fn note(&self) {
        self.forgotten_then.store(self.forgotten.load(Ordering::SeqCst), Ordering::SeqCst);
        self.last_ns.store(time::now_ns(), Ordering::SeqCst);
    }

    /// An inode that the kernel has forgotten is dealt with.
    pub(crate) fn note_forgotten(&self) {
        self.forgotten.fetch_add(1, Ordering::SeqCst);
    }

    /// Waits until the kernel has forgotten something since the last removal, if that was lately; 1.2 ms at most.
    pub(crate) fn settle(&self) {
        self.settle_by(time::now_ns(), time::sleep_ns);
    }

    fn settle_by(&self, now_ns: u64, mut pause: impl FnMut(u64)) {
        let last_ns = self.last_ns.load(Ordering::SeqCst);
        if last_ns == 0 || now_ns.saturating_sub(last_ns) > LATELY_NS {
            return;
        }
        for pause_ns in SETTLING_NS {
            if self.forgotten.load(Ordering::SeqCst) != self.forgotten_then.load(Ordering::SeqCst) {
                break;
            }
            pause(pause_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often it is waited, `after_ns` after now, if something is forgotten during the pause number `forgotten_in`.
    fn pauses(removals: &Removals, after_ns: u64, forgotten_in: usize) -> usize {
        let mut count = 0;
        removals.settle_by(time::now_ns() + after_ns, |_| {
            count += 1;
            if count == forgotten_in {
                removals.note_forgotten();
            }
        });
        count
    }

    #[test]
    fn who_asks_for_room_waits_for_what_was_removed_lately() {
        let removals = Removals::default();
        assert_eq!(pauses(&removals, 0, 1), 0, "nothing was removed");
        removals.note();
        assert_eq!(pauses(&removals, 2 * LATELY_NS, 1), 0, "that was long ago");
        assert_eq!(pauses(&removals, 0, 2), 2);
        assert_eq!(pauses(&removals, 0, 1), 0, "it was forgotten");
        removals.note();
        assert_eq!(pauses(&removals, 0, 100), 2, "somebody has it open");
    }

    /// How often it is tried, and what comes of it, if there is room from the `room_at`-th time on.
    fn tried(room_at: usize) -> (usize, Result<()>) {
        let mut times = 0;
        let outcome = with_room(|| {
            times += 1;
            if times < room_at { Err(Error::NoSpace) } else { Ok(()) }
        });
        (times, outcome)
    }

    #[test]
    fn room_that_comes_late_is_found() {
        assert_eq!(tried(1), (1, Ok(())));
        assert_eq!(tried(3), (3, Ok(())));
    }

    #[test]
    fn a_full_file_system_says_so() {
        assert_eq!(tried(100), (4, Err(Error::NoSpace)));
    }

    #[test]
    fn other_errors_are_answered_at_once() {
        let mut times = 0;
        let outcome: Result<()> = with_room(|| {
            times += 1;
            Err(Error::NotFound)
        });
        assert_eq!((times, outcome), (1, Err(Error::NotFound)));
    }
}
