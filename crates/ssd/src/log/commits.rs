//! When each transaction was committed: a table that is read without a lock.
//!
//! Every store asks it for its own transaction and for those of the versions it meets, mostly of numbers that
//! lie close together, since the host counts them up. So a number's slot is its remainder: the numbers in use
//! at a time, mostly a window as long as the transaction log, have slots of their own, consecutive ones
//! beside each other, and a host that gives each processor a run of numbers keeps processors out of each
//! other's cache lines. A host may count as it likes: what finds its slot taken goes into a map behind a
//! lock.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

use amphi_rt::sync::{Mutex, OnceCell};
use hashbrown::HashMap;

/// Slots of a part, 16 KB: the table grows with the numbers that are used.
const PART_SLOTS: usize = 1024;

/// One commit. `number` is the transaction's, or 0 while the slot is empty.
#[derive(Debug, Default)]
struct Slot {
    number: AtomicU32,
    /// Counts the changes, up before and after each: it is odd while one is under way. Whoever finds the same
    /// even count before and after reading has read one commit, though the slot may have gone to another
    /// transaction and come back meanwhile.
    changes: AtomicU32,
    at: AtomicU64,
}

const _: () = assert!(size_of::<Slot>() == 16);

impl Slot {
    /// When transaction `number` was committed, if the slot is its.
    #[inline]
    fn get(&self, number: u32) -> Option<u64> {
        let before = self.changes.load(Ordering::Acquire);
        if self.number.load(Ordering::Relaxed) != number || before % 2 == 1 {
            return None;
        }
        let at = self.at.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        // Else the slot is being emptied, or was, and perhaps given to another.
        (self.changes.load(Ordering::Relaxed) == before).then_some(at)
    }

    /// Changes the slot by `change`, unless somebody else does just now. Answers whether it is changed.
    fn change(&self, change: impl FnOnce(&Self) -> bool) -> bool {
        let before = self.changes.load(Ordering::Relaxed);
        if before % 2 == 1
            || self
                .changes
                .compare_exchange(before, before.wrapping_add(1), Ordering::Acquire, Ordering::Relaxed)
                .is_err()
        {
            return false;
        }
        fence(Ordering::Release);
        let changed = change(self);
        self.changes.store(before.wrapping_add(2), Ordering::Release);
        changed
    }

    /// Gives the slot to a transaction, if no other has it. Answers whether it is this one's.
    fn insert(&self, number: u32, at: u64) -> bool {
        self.change(|slot| {
            let free = [0, number].contains(&slot.number.load(Ordering::Relaxed));
            if free {
                slot.number.store(number, Ordering::Relaxed);
                slot.at.store(at, Ordering::Relaxed);
            }
            free
        })
    }

    /// Whether the slot is of this commit.
    fn is_of(&self, number: u32, at: u64) -> bool {
        self.number.load(Ordering::Relaxed) == number && self.at.load(Ordering::Relaxed) == at
    }

    /// Empties the slot, if it is of this commit. Answers whether it was.
    fn remove(&self, number: u32, at: u64) -> bool {
        while self.is_of(number, at) {
            let emptied = self.change(|slot| {
                let its = slot.is_of(number, at);
                if its {
                    slot.number.store(0, Ordering::Relaxed);
                }
                its
            });
            if emptied {
                return true;
            }
            amphi_rt::task::yield_now();
        }
        false
    }
}

/// Commits by transaction number. Any task may note one or read; a number is noted, and forgotten, by one
/// task at a time.
#[derive(Debug)]
pub(crate) struct Commits {
    parts: Box<[OnceCell<Box<[Slot]>>]>,
    /// Those whose slots were taken.
    others: Mutex<HashMap<u32, u64>>,
    others_count: AtomicUsize,
}

impl Commits {
    /// An empty table for windows of `numbers` consecutive numbers.
    pub(crate) fn new(numbers: u64) -> Self {
        let parts = (numbers as usize).div_ceil(PART_SLOTS).next_power_of_two();
        Self {
            parts: (0..parts).map(|_| OnceCell::new()).collect(),
            others: Mutex::default(),
            others_count: AtomicUsize::new(0),
        }
    }

    fn part(&self, number: u32) -> &OnceCell<Box<[Slot]>> {
        &self.parts[number as usize / PART_SLOTS % self.parts.len()]
    }

    /// When the transaction, which is not 0, was committed, on the sequence clock.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<u64> {
        if let Some(part) = self.part(number).get() {
            let at = part[number as usize % PART_SLOTS].get(number);
            if at.is_some() {
                return at;
            }
        }
        if self.others_count.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.others.lock().get(&number).copied()
    }

    /// Notes a commit.
    pub(crate) fn insert(&self, number: u32, at: u64) {
        let part = self.part(number).get_or_init(|| (0..PART_SLOTS).map(|_| Slot::default()).collect());
        if part[number as usize % PART_SLOTS].insert(number, at) {
            return;
        }
        let mut others = self.others.lock();
        others.insert(number, at);
        self.others_count.store(others.len(), Ordering::Release);
    }

    /// Forgets a commit, unless the transaction has been committed again since.
    pub(crate) fn remove(&self, number: u32, at: u64) {
        if let Some(part) = self.part(number).get()
            && part[number as usize % PART_SLOTS].remove(number, at)
        {
            return;
        }
        if self.others_count.load(Ordering::Relaxed) > 0 {
            let mut others = self.others.lock();
            if others.get(&number) == Some(&at) {
                others.remove(&number);
            }
            self.others_count.store(others.len(), Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn commits_are_found_until_they_are_removed() {
        let commits = Commits::new(2048);
        assert_eq!(commits.get(7), None);
        commits.insert(7, 70);
        commits.insert(8, 80);
        assert_eq!((commits.get(7), commits.get(8), commits.get(9)), (Some(70), Some(80), None));
        commits.remove(7, 71);
        assert_eq!(commits.get(7), Some(70), "that was an earlier commit of the same number");
        commits.remove(7, 70);
        assert_eq!((commits.get(7), commits.get(8)), (None, Some(80)));
        commits.insert(8, 81);
        assert_eq!(commits.get(8), Some(81));
    }

    #[test]
    fn numbers_far_apart_do_not_displace_each_other() {
        let commits = Commits::new(2048);
        let numbers = [5, 5 + 2048, 5 + 4096, u32::MAX, u32::MAX - 2048];
        for (at, number) in numbers.into_iter().enumerate() {
            commits.insert(number, at as u64);
        }
        for (at, number) in numbers.into_iter().enumerate() {
            assert_eq!(commits.get(number), Some(at as u64), "{number}");
        }
        for (at, number) in numbers.into_iter().enumerate() {
            commits.remove(number, at as u64);
            assert_eq!(commits.get(number), None, "{number}");
            let later = numbers.into_iter().enumerate().skip(at + 1);
            later.for_each(|(at, number)| assert_eq!(commits.get(number), Some(at as u64), "{number}"));
        }
        assert_eq!(commits.others_count.load(Ordering::Relaxed), 0);
    }

    /// A reader never gets one transaction's time for another's, however often their slot changes hands.
    #[test]
    fn a_slot_that_changes_hands_is_read_whole() {
        const READS: usize = 1_000_000;
        let commits = Arc::new(Commits::new(1024));
        let done = Arc::new(AtomicBool::new(false));
        let (one, other) = (3, 3 + 1024);
        let (theirs, ends) = (Arc::clone(&commits), Arc::clone(&done));
        let writer = amphi_rt::task::spawn("writer", move || {
            let mut at = 0;
            while !ends.load(Ordering::Relaxed) {
                let number = if at % 2 == 0 { one } else { other };
                theirs.insert(number, at);
                theirs.remove(number, at);
                at += 1;
            }
        });
        for _ in 0..READS {
            assert!(commits.get(one).is_none_or(|at| at % 2 == 0));
            assert!(commits.get(other).is_none_or(|at| at % 2 == 1));
        }
        done.store(true, Ordering::Relaxed);
        writer.join();
    }
}
