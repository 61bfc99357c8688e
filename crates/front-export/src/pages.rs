//! Locks on pages. Who writes a part of a page must read the rest first and write both; nobody else may write
//! the page in between, or what they wrote is lost. Whole pages need no such care among each other, so they
//! share.
//!
//! Pages share a fixed number of locks by their number. A command takes those of all its pages in ascending
//! order of the locks, so that no two commands wait for each other.

use amphi_rt::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use smallvec::SmallVec;

/// Number of locks, and so the most pages that can be locked at once.
pub(crate) const PAGES_MAX: usize = 256;

/// The locks of a device's pages.
#[derive(Debug)]
pub(crate) struct PageLocks(Box<[RwLock<()>]>);

/// How long one page's lock is held: until this is dropped.
#[derive(Debug)]
pub(crate) enum Held<'a> {
    /// Together with others that write all of it.
    Shared { _guard: RwLockReadGuard<'a, ()> },
    /// Alone.
    Alone { _guard: RwLockWriteGuard<'a, ()> },
}

/// Small commands hold their locks without allocating.
pub(crate) type HeldPages<'a> = SmallVec<[Held<'a>; 16]>;

impl PageLocks {
    pub(crate) fn new() -> Self {
        Self((0..PAGES_MAX).map(|_| RwLock::new(())).collect())
    }

    /// Locks the `pages` pages from `first`, those for which `alone` holds against everybody.
    ///
    /// # Panics
    /// With more than [`PAGES_MAX`] pages: one lock would be taken twice.
    pub(crate) fn hold(&self, first: u64, pages: usize, alone: impl Fn(u64) -> bool) -> HeldPages<'_> {
        assert!(pages <= PAGES_MAX, "{pages} pages cannot be locked at once");
        let locks = PAGES_MAX as u64;
        let end = first + pages as u64;
        // The page of the first lock, if the range reaches it: the pages before it have the higher locks.
        let turn = end.min(first.next_multiple_of(locks));
        let mut held = HeldPages::new();
        for page in (turn..end).chain(first..turn) {
            let lock = &self.0[(page % locks) as usize];
            held.push(if alone(page) {
                Held::Alone { _guard: lock.write() }
            } else {
                Held::Shared { _guard: lock.read() }
            });
        }
        held
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amphi_rt::{Sim, random, task, time};

    /// Two ranges that need the same two pages' locks, one of them in the other order of its pages, and
    /// somebody in the way.
    #[test]
    fn ranges_that_wrap_do_not_wait_for_each_other() {
        for seed in 1..=20 {
            Sim::new(seed).run(|| {
                let locks = &PageLocks::new();
                task::scope(|scope| {
                    for (first, last) in [(250, 260), (516, 762), (4, 4), (250, 250)] {
                        scope.spawn("holder", move || {
                            for _ in 0..20 {
                                let pages = (last - first + 1) as usize;
                                let held = locks.hold(first, pages, |page| page == first || page == last);
                                assert_eq!(held.len(), pages);
                                time::sleep_ns(random::below(50));
                            }
                        });
                    }
                });
            });
        }
    }
}
