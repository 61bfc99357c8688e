//! The queues of those who wait for a lock or a condition variable.

use super::task::{Hold, LockId, Slot};
use hashbrown::HashMap;
use std::cell::Cell;
use std::collections::VecDeque;

/// How many tasks wait for locks, by a hash of the lock: nearly every lock that is taken or released has
/// nobody waiting, while some other lock has. Who waits for a lock counts in its place, so a place with
/// nobody says that nobody waits; one with somebody says that the queue must be looked at.
pub(crate) struct LockWaiters([Cell<u32>; 256]);

impl Default for LockWaiters {
    fn default() -> Self {
        Self([const { Cell::new(0) }; 256])
    }
}

impl LockWaiters {
    #[inline]
    fn place(&self, id: LockId) -> &Cell<u32> {
        // Locks lie side by side, on lines of their own or several in one.
        let hash = (id.0 as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
        &self.0[hash as usize]
    }

    /// Whether somebody may wait for this lock.
    #[inline]
    pub(super) fn may_be(&self, id: LockId) -> bool {
        self.place(id).get() > 0
    }

    pub(super) fn one_more(&self, id: LockId) {
        let place = self.place(id);
        place.set(place.get() + 1);
    }

    pub(super) fn one_fewer(&self, id: LockId) {
        let place = self.place(id);
        place.set(place.get() - 1);
    }
}

struct Queue {
    /// Counts queues in the order in which they came to be: a name for reports and traces that is the same in
    /// every run.
    number: u64,
    waiters: VecDeque<(Slot, Hold)>,
}

/// All queues with somebody in them.
#[derive(Default)]
pub(crate) struct Queues {
    map: HashMap<LockId, Queue>,
    made: u64,
    /// Empty buffers to use again.
    spare: Vec<VecDeque<(Slot, Hold)>>,
}

impl Queues {
    pub(super) fn join(&mut self, id: LockId, slot: Slot, hold: Hold) {
        let queue = self.map.entry(id).or_insert_with(|| {
            self.made += 1;
            Queue { number: self.made, waiters: self.spare.pop().unwrap_or_default() }
        });
        // The task that upgrades blocks all others in the queue, so it goes first.
        if hold == Hold::Upgrade {
            queue.waiters.push_front((slot, hold));
        } else {
            queue.waiters.push_back((slot, hold));
        }
    }

    pub(super) fn remove(&mut self, id: LockId, index: usize) -> Option<(Slot, Hold)> {
        let queue = self.map.get_mut(&id)?;
        let waiter = queue.waiters.remove(index);
        if queue.waiters.is_empty()
            && let Some(queue) = self.map.remove(&id)
        {
            self.spare.push(queue.waiters);
        }
        waiter
    }

    pub(super) fn waiters(&self, id: LockId) -> impl Iterator<Item = (Slot, Hold)> {
        self.map.get(&id).into_iter().flat_map(|queue| queue.waiters.iter().copied())
    }

    pub(super) fn len(&self, id: LockId) -> usize {
        self.map.get(&id).map_or(0, |queue| queue.waiters.len())
    }

    /// The queue's number, while somebody waits.
    pub(crate) fn number(&self, id: LockId) -> u64 {
        self.map.get(&id).map_or(0, |queue| queue.number)
    }
}
