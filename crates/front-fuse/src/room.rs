//! Room that is on its way back.
//!
//! A removed file's blocks are free when nobody uses it any more. The kernel tells that in a request of its
//! own, `FORGET`, after `unlink` has returned, and the thread that has read it may be behind the one that
//! serves the next write. Somebody who has made room by removing a file must find it, so what finds none is
//! tried again before it is refused, and who asks right then how much there is waits for it.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use amphi_rt::sync::{Mutex, OnceCell};
use amphi_rt::time;
use amphi_vfs::{Error, Ino, Result};
use rustix::event::PollFlags;

use crate::kernel::is_now;

/// A thread that has read a request is behind by as much as the scheduler makes it wait.
const PAUSES_NS: [u64; 3] = [1_000_000, 5_000_000, 20_000_000];

/// How often, and after how many ns, it is looked again whether what the kernel has told of forgotten inodes
/// is dealt with; 0.25 s in all.
const LOOKS: usize = 250;
const LOOK_AFTER_NS: u64 = 1_000_000;

/// Who asks how much room there is waits less: the file may be open for long.
const SETTLING_NS: [u64; 2] = [200_000, 1_000_000];

/// For how long after a removal the kernel may be about to forget what was removed. Who keeps a file open for
/// longer finds its room a moment late.
const LATELY_NS: u64 = 250_000_000;

/// What was removed and is not forgotten by the kernel yet.
#[derive(Debug, Default)]
pub(crate) struct Removals {
    /// Such inodes, and when they lost their last name, in ns: those that somebody has open, and those that
    /// are being forgotten.
    awaited: Mutex<BTreeMap<Ino, u64>>,
    /// Threads that are just dealing with what the kernel has forgotten.
    under_way: AtomicU64,
    /// The device, if nothing else comes through it: requests through rings are served by other threads,
    /// which may be far ahead of the one that reads it.
    told_through: OnceCell<Arc<OwnedFd>>,
}

impl Removals {
    /// From now on nothing but forgotten inodes and interrupts comes through `device`.
    pub(crate) fn are_told_through(&self, device: Arc<OwnedFd>) {
        self.told_through.get_or_init(|| device);
    }

    /// Does `operation`, and again a little later while it finds no room.
    ///
    /// # Errors
    /// As `operation`.
    pub(crate) fn with_room<T>(&self, mut operation: impl FnMut() -> Result<T>) -> Result<T> {
        let mut outcome = operation();
        for pause_ns in PAUSES_NS {
            if !matches!(outcome, Err(Error::NoSpace | Error::NoInodes)) {
                break;
            }
            time::sleep_ns(pause_ns);
            for _ in 0..LOOKS {
                if !self.is_behind() {
                    break;
                }
                time::sleep_ns(LOOK_AFTER_NS);
            }
            outcome = operation();
        }
        outcome
    }

    /// Whether somebody deals with forgotten inodes, or the device has yet to tell of some. Where requests
    /// come through it too, who wants another one gets those first.
    fn is_behind(&self) -> bool {
        if self.under_way.load(Ordering::SeqCst) > 0 {
            return true;
        }
        self.told_through.get().is_some_and(|device| is_now(device, PollFlags::IN))
    }

    /// A file or directory has lost its last name, which the kernel has not been told yet.
    pub(crate) fn note(&self, ino: Ino) {
        self.awaited.lock().insert(ino, time::now_ns());
    }

    /// Deals by `forget` with an inode that the kernel has forgotten.
    pub(crate) fn forgotten(&self, ino: Ino, forget: impl FnOnce()) {
        let _under_way = UnderWay::begin(&self.under_way);
        forget();
        self.awaited.lock().remove(&ino);
    }

    /// Waits until the kernel has forgotten what was removed lately: for 0.25 s at most while it has told of
    /// something that is not dealt with yet, else for 1.2 ms.
    pub(crate) fn settle(&self) {
        self.settle_by(time::now_ns(), time::sleep_ns);
    }

    fn settle_by(&self, now_ns: u64, mut pause: impl FnMut(u64)) {
        // What is removed later is not waited for.
        let lately = now_ns.saturating_sub(LATELY_NS)..=now_ns;
        let mut pauses = SETTLING_NS.into_iter();
        for _ in 0..LOOKS {
            if !self.awaited.lock().values().any(|then_ns| lately.contains(then_ns)) {
                break;
            }
            let next = if self.is_behind() { Some(LOOK_AFTER_NS) } else { pauses.next() };
            let Some(pause_ns) = next else { break };
            pause(pause_ns);
        }
    }
}

/// Counts for as long as it lives, also if what goes on meanwhile panics.
struct UnderWay<'a>(&'a AtomicU64);

impl<'a> UnderWay<'a> {
    fn begin(count: &'a AtomicU64) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// How often it is waited, `after_ns` after now, if something is forgotten during the pause number
    /// `forgotten_in`.
    fn pauses(removals: &Removals, after_ns: u64, forgotten_in: usize) -> usize {
        let mut count = 0;
        removals.settle_by(time::now_ns() + after_ns, |_| {
            count += 1;
            if count == forgotten_in {
                removals.forgotten(Ino(7), || ());
            }
        });
        count
    }

    #[test]
    fn who_asks_for_room_waits_for_what_was_removed_lately() {
        let removals = Removals::default();
        assert_eq!(pauses(&removals, 0, 1), 0, "nothing was removed");
        removals.note(Ino(7));
        assert_eq!(pauses(&removals, 2 * LATELY_NS, 1), 0, "that was long ago");
        assert_eq!(pauses(&removals, 0, 2), 2);
        assert_eq!(pauses(&removals, 0, 1), 0, "it was forgotten");
        removals.note(Ino(7));
        removals.forgotten(Ino(8), || ());
        assert_eq!(pauses(&removals, 0, 100), 2, "somebody has it open");
        removals.forgotten(Ino(8), || assert_eq!(pauses(&removals, 0, 7), 7, "it may be the next one"));
    }

    #[test]
    fn what_the_device_has_yet_to_tell_is_waited_for() {
        let removals = Removals::default();
        let (device, mut kernel) = std::io::pipe().unwrap();
        let device = Arc::new(OwnedFd::from(device));
        removals.are_told_through(Arc::clone(&device));
        removals.note(Ino(7));
        assert_eq!(pauses(&removals, 0, 100), 2, "it has nothing to tell");
        kernel.write_all(b"forget").unwrap();
        assert_eq!(pauses(&removals, 0, 20), 20);
        assert_eq!(pauses(&removals, 0, 0), 0, "it tells of what nobody waits for");
        removals.note(Ino(7));
        assert_eq!(pauses(&removals, 0, 0), LOOKS, "it is never read");
        rustix::io::read(&device, &mut [0; 16]).unwrap();
        drop(kernel);
        assert_eq!(pauses(&removals, 0, 0), 2, "it has ended");
    }

    /// How often it is tried, and what comes of it, if there is room from the `room_at`-th time on.
    fn tried(room_at: usize) -> (usize, Result<()>) {
        let mut times = 0;
        let outcome = Removals::default().with_room(|| {
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
        let outcome: Result<()> = Removals::default().with_room(|| {
            times += 1;
            Err(Error::NotFound)
        });
        assert_eq!((times, outcome), (1, Err(Error::NotFound)));
    }
}
