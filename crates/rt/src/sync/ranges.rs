//! A lock of ranges of numbers: tasks whose ranges do not meet, or who only read, do not wait for each other.
//!
//! Few ranges are held at a time, so they are kept in a list. Who waits is woken when any range is released,
//! and looks again; nobody is promised a turn.

use super::{Condvar, Mutex};
use std::ops::Range;

/// The lock. It protects nothing by itself: what a range stands for is its user's.
#[derive(Debug)]
pub struct RangeLock {
    state: Mutex<State>,
    released: Condvar,
}

#[derive(Debug, Default)]
struct State {
    held: Vec<Held>,
    waiting: usize,
    next: u64,
}

#[derive(Debug)]
struct Held {
    id: u64,
    range: Range<u64>,
    exclusive: bool,
}

/// A range that is held until this is dropped.
#[derive(Debug)]
#[must_use = "the range is released when this is dropped"]
pub struct RangeGuard<'a> {
    lock: &'a RangeLock,
    id: u64,
}

impl Default for RangeLock {
    fn default() -> Self {
        Self { state: Mutex::new(State::default()), released: Condvar::named("range") }
    }
}

impl State {
    fn is_free(&self, range: &Range<u64>, exclusive: bool) -> bool {
        let meets = |held: &Held| held.range.start < range.end && range.start < held.range.end;
        !self.held.iter().any(|held| (exclusive || held.exclusive) && meets(held))
    }
}

impl RangeLock {
    /// Takes a range, alone if `exclusive`, if nobody who would be in the way holds a part of it.
    pub fn try_take(&self, range: Range<u64>, exclusive: bool) -> Option<RangeGuard<'_>> {
        let mut state = self.state.lock();
        if !state.is_free(&range, exclusive) {
            return None;
        }
        let id = state.next;
        state.next += 1;
        state.held.push(Held { id, range, exclusive });
        Some(RangeGuard { lock: self, id })
    }

    /// Waits until [`try_take`](Self::try_take) would have succeeded once. By the time the caller asks,
    /// somebody else may have been faster.
    pub fn wait_for(&self, range: &Range<u64>, exclusive: bool) {
        let mut state = self.state.lock();
        while !state.is_free(range, exclusive) {
            state.waiting += 1;
            self.released.wait(&mut state);
            state.waiting -= 1;
        }
    }

    /// Takes a range, after waiting for it.
    pub fn take(&self, range: Range<u64>, exclusive: bool) -> RangeGuard<'_> {
        loop {
            if let Some(guard) = self.try_take(range.clone(), exclusive) {
                return guard;
            }
            self.wait_for(&range, exclusive);
        }
    }

    /// Whether nobody holds any range.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.state.lock().held.is_empty()
    }
}

impl Drop for RangeGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.lock.state.lock();
        if let Some(at) = state.held.iter().position(|held| held.id == self.id) {
            state.held.swap_remove(at);
        }
        if state.waiting > 0 {
            self.lock.released.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Sim, task, time};
    use std::sync::Arc;

    #[test]
    fn ranges_that_do_not_meet_are_held_together() {
        let lock = RangeLock::default();
        let first = lock.try_take(0..4, true).expect("nobody holds anything");
        let second = lock.try_take(4..8, true).expect("it begins where the first ends");
        assert!(lock.try_take(3..5, false).is_none(), "writers keep readers out");
        drop((first, second));
        let readers = (lock.take(0..9, false), lock.take(3..5, false));
        assert!(lock.try_take(4..5, true).is_none(), "readers keep writers out");
        assert!(!lock.is_idle());
        drop(readers);
        assert!(lock.is_idle());
    }

    #[test]
    fn who_waits_gets_the_range_when_it_is_released() {
        for seed in 0..20 {
            Sim::new(seed).run(|| {
                let lock = Arc::new(RangeLock::default());
                let inside = Arc::new(Mutex::new(0));
                let tasks: Vec<_> = (0..4_u64)
                    .map(|number| {
                        let (lock, inside) = (Arc::clone(&lock), Arc::clone(&inside));
                        task::spawn("writer", move || {
                            for _ in 0..10 {
                                let _held = lock.take(number..8, true);
                                *inside.lock() += 1;
                                time::sleep_ns(5);
                                assert_eq!(*inside.lock(), 1, "one at a time");
                                *inside.lock() -= 1;
                            }
                        })
                    })
                    .collect();
                tasks.into_iter().for_each(task::JoinHandle::join);
            });
        }
    }
}
