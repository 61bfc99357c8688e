//! Room that is on its way back.
//!
//! A removed file's blocks are free when nobody uses it any more. The kernel tells that in a request of its own, `FORGET`, after `unlink` has returned, and the thread that
//! has read it may be behind the one that serves the next write. Somebody who has made room by removing a file must find it, so what finds none is tried again before
//! it is refused.

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

#[cfg(test)]
mod tests {
    use super::*;

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
