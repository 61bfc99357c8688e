//! A counting semaphore, first come, first served.

use super::{Condvar, Mutex};
use crate::time::Deadline;
use std::collections::VecDeque;
use std::time::Duration;

/// A number of permits that tasks take and give back. A request for many is not starved by requests for few.
#[derive(Debug)]
pub struct Semaphore {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    permits: usize,
    /// Tickets of waiting requests, oldest first.
    waiting: VecDeque<u64>,
    next_ticket: u64,
}

/// Permits taken from a [`Semaphore`]; given back when dropped.
#[derive(Debug)]
#[must_use = "permits are given back when this is dropped"]
pub struct Permits<'a> {
    semaphore: &'a Semaphore,
    count: usize,
}

impl Semaphore {
    /// A semaphore with so many permits.
    #[must_use]
    pub const fn new(permits: usize) -> Self {
        Self {
            state: Mutex::new(State { permits, waiting: VecDeque::new(), next_ticket: 0 }),
            changed: Condvar::named("semaphore"),
        }
    }

    /// Takes `count` permits, after waiting for them if there are fewer.
    pub fn acquire(&self, count: usize) -> Permits<'_> {
        let taken = self.take(count, Deadline::NEVER);
        debug_assert!(taken, "a wait without a limit ends with the permits");
        Permits { semaphore: self, count }
    }

    /// As [`Semaphore::acquire`], waiting at most for `timeout`.
    pub fn acquire_for(&self, count: usize, timeout: Duration) -> Option<Permits<'_>> {
        self.take(count, Deadline::after(timeout)).then_some(Permits { semaphore: self, count })
    }

    /// Takes `count` permits if they are there and nobody waits.
    pub fn try_acquire(&self, count: usize) -> Option<Permits<'_>> {
        let mut state = self.state.lock();
        if !state.waiting.is_empty() || state.permits < count {
            return None;
        }
        state.permits -= count;
        Some(Permits { semaphore: self, count })
    }

    /// Permits that nobody holds.
    #[must_use]
    pub fn available(&self) -> usize {
        self.state.lock().permits
    }

    /// Adds permits: those of [`Permits::forget`], or new ones.
    pub fn add(&self, count: usize) {
        self.state.lock().permits += count;
        self.changed.notify_all();
    }

    fn take(&self, count: usize, deadline: Deadline) -> bool {
        let mut state = self.state.lock();
        if state.waiting.is_empty() && state.permits >= count {
            state.permits -= count;
            return true;
        }
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.waiting.push_back(ticket);
        /// Leaves the queue also when the wait unwinds.
        struct Place<'a, 'b> {
            semaphore: &'a Semaphore,
            state: &'b mut super::MutexGuard<'a, State>,
            ticket: u64,
        }
        impl Drop for Place<'_, '_> {
            fn drop(&mut self) {
                self.state.waiting.retain(|other| *other != self.ticket);
                // The next in the queue may have enough.
                self.semaphore.changed.notify_all();
            }
        }
        let place = Place { semaphore: self, state: &mut state, ticket };
        while place.state.waiting.front() != Some(&ticket) || place.state.permits < count {
            if self.changed.wait_deadline(place.state, deadline).timed_out() {
                return false;
            }
        }
        place.state.permits -= count;
        true
    }
}

impl Permits<'_> {
    /// Keeps the permits from going back; [`Semaphore::add`] gives them back later.
    pub fn forget(mut self) {
        self.count = 0;
    }
}

impl Drop for Permits<'_> {
    fn drop(&mut self) {
        if self.count > 0 {
            self.semaphore.add(self.count);
        }
    }
}
