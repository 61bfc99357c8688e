//! Who waits for which lock or condition variable, who holds it, and how it passes on.
//!
//! A released lock is handed to the longest-waiting task, so virtual time has no starvation; in a search
//! everybody who waits is woken instead and the schedule decides who gets it.

use super::core::{Core, State};
use super::failure::FailureKind;
use super::task::{Hold, LockId, Slot, Wait, Woken};
use super::waiters::LockWaiters;
use crate::time::Deadline;
use std::sync::atomic::{AtomicU32, Ordering};

impl State {
    /// Takes a task out of the queue in which it waits, if any.
    pub(crate) fn leave_queue(&mut self, slot: Slot, lock_waiters: &LockWaiters) {
        let (id, is_lock) = match self.tasks[slot as usize].wait {
            Wait::Lock { id, .. } => (id, true),
            Wait::Condvar { id, .. } => (id, false),
            _ => return,
        };
        let index = self.queues.waiters(id).position(|(waiter, _)| waiter == slot);
        if let Some(index) = index {
            self.queues.remove(id, index);
            if is_lock {
                lock_waiters.one_fewer(id);
            }
        }
    }

    fn holds(&self, slot: usize, id: LockId) -> bool {
        self.tasks
            .get(slot)
            .is_some_and(|task| task.alive && task.held.iter().rev().any(|(held, _)| *held == id))
    }

    /// The tasks that hold a lock.
    pub(crate) fn holders(&self, id: LockId) -> impl Iterator<Item = Slot> {
        (0..self.tasks.len()).filter(move |slot| self.holds(*slot, id)).map(|slot| slot as Slot)
    }

    fn held_by_a_task(&self, id: LockId, hint: &AtomicU32) -> bool {
        let likely = hint.load(Ordering::Relaxed) as usize;
        (likely > 0 && self.holds(likely - 1, id)) || self.holders(id).next().is_some()
    }

    /// Whether a task is blocked until others do something, however long that takes.
    fn is_stuck(&self, slot: Slot) -> bool {
        let task = &self.tasks[slot as usize];
        task.deadline == u64::MAX && matches!(task.wait, Wait::Lock { .. } | Wait::Join { .. })
    }

    /// Whether waiting for this lock may close a circle. Mostly the answer is no, and costs a look at one
    /// task.
    fn may_deadlock(&self, id: LockId, hint: &AtomicU32, by: Slot) -> bool {
        let holder = (hint.load(Ordering::Relaxed) as usize).wrapping_sub(1);
        let alone = self.holds(holder, id)
            && self.tasks[holder].held.iter().any(|(held, hold)| *held == id && *hold == Hold::Exclusive);
        // A writer with a time limit goes away by itself and lets readers behind it in, so it makes no
        // circle.
        let passing = |(waiter, _): (Slot, Hold)| self.tasks[waiter as usize].deadline != u64::MAX;
        if alone {
            holder as Slot == by || self.is_stuck(holder as Slot)
        } else {
            !self.queues.waiters(id).any(passing)
        }
    }

    fn note_held(&mut self, slot: Slot, id: LockId, hold: Hold, hint: &AtomicU32) {
        hint.store(slot + 1, Ordering::Relaxed);
        let held = &mut self.tasks[slot as usize].held;
        if hold == Hold::Upgrade {
            if let Some(entry) = held.iter_mut().rev().find(|(held, _)| *held == id) {
                entry.1 = Hold::Exclusive;
            }
        } else {
            held.push((id, hold));
        }
    }

    /// The tasks without which `wait` of `slot` cannot end.
    pub(crate) fn blockers(&self, slot: Slot, wait: Wait) -> Vec<Slot> {
        match wait {
            Wait::Join { slot, id } => {
                let task = &self.tasks[slot as usize];
                if task.alive && task.id == id { vec![slot] } else { Vec::new() }
            }
            // Those before it in the queue wait for the same holders, so they add nothing.
            Wait::Lock { id, hold } => {
                self.holders(id).filter(|holder| hold != Hold::Upgrade || *holder != slot).collect()
            }
            _ => Vec::new(),
        }
    }
}

impl Core {
    /// Whether the task must wait although the lock could be taken: a writer is before it in the queue.
    pub(crate) fn must_queue(&self, id: LockId, hold: Hold) -> bool {
        self.lock_waiters.may_be(id)
            && !matches!(hold, Hold::Upgrade | Hold::SharedRecursive)
            && self.state.borrow().queues.len(id) > 0
    }

    /// Notes that the current task took a lock.
    #[inline]
    pub(crate) fn acquired(&self, id: LockId, hold: Hold, hint: &AtomicU32) {
        let slot = self.current();
        hint.store(slot.wrapping_add(1), Ordering::Relaxed);
        if let Some(task) = self.state.borrow_mut().tasks.get_mut(slot as usize) {
            task.held.push((id, hold));
        }
    }

    /// Notes that the current task released a lock, and passes it on. `take` tries it without blocking;
    /// `block` waits for it on the OS thread, for locks that somebody outside the Sim holds.
    #[inline]
    pub(crate) fn released(
        &self,
        id: LockId,
        hint: &AtomicU32,
        take: &dyn Fn(Hold) -> bool,
        block: &dyn Fn(Hold),
    ) {
        if let Some(task) = self.state.borrow_mut().tasks.get_mut(self.current() as usize)
            && let Some(index) = task.held.iter().rposition(|(held, _)| *held == id)
        {
            task.held.swap_remove(index);
        }
        if self.lock_waiters.may_be(id) {
            self.hand_over(id, hint, take, block);
        }
    }

    /// Notes that the current task holds a lock less strictly than before, and lets in who may now enter.
    pub(crate) fn weakened(&self, id: LockId, hint: &AtomicU32, take: &dyn Fn(Hold) -> bool) {
        if self.lock_waiters.may_be(id) {
            self.hand_over(id, hint, take, &|_| ());
        }
    }

    #[cold]
    fn hand_over(&self, id: LockId, hint: &AtomicU32, take: &dyn Fn(Hold) -> bool, block: &dyn Fn(Hold)) {
        if self.searching() {
            let state = &mut *self.state.borrow_mut();
            while let Some((slot, _)) = state.queues.remove(id, 0) {
                self.lock_waiters.one_fewer(id);
                self.wake(state, slot, Woken::Notified);
            }
            return;
        }
        loop {
            let state = &mut *self.state.borrow_mut();
            let Some((slot, hold)) = state.queues.waiters(id).next() else { return };
            if !take(hold) {
                if state.held_by_a_task(id, hint) {
                    return;
                }
                block(hold);
            }
            state.queues.remove(id, 0);
            self.lock_waiters.one_fewer(id);
            state.note_held(slot, id, hold, hint);
            self.wake(state, slot, Woken::Handed);
        }
    }

    /// Takes a lock that could not be taken at once. False when the deadline passed first.
    pub(crate) fn lock_slow(
        &self,
        id: LockId,
        hold: Hold,
        hint: &AtomicU32,
        deadline: Deadline,
        take: &dyn Fn(Hold) -> bool,
        block: &dyn Fn(Hold),
    ) -> bool {
        let slot = self.current();
        let wait = Wait::Lock { id, hold };
        loop {
            let (foreign, deadlock) = {
                let state = &mut *self.state.borrow_mut();
                let foreign = state.queues.len(id) == 0 && !state.held_by_a_task(id, hint);
                if !foreign {
                    state.queues.join(id, slot, hold);
                    self.lock_waiters.one_more(id);
                }
                let deadlock = !foreign
                    && deadline == Deadline::NEVER
                    && state.may_deadlock(id, hint, slot)
                    && self.closes_cycle(state, slot, wait);
                (foreign, deadlock)
            };
            if foreign {
                // Nobody in this Sim will release it, so nothing is lost by stopping the Sim until somebody
                // else does.
                block(hold);
                self.state.borrow_mut().note_held(slot, id, hold, hint);
                return true;
            }
            if deadlock && self.can_throw() {
                {
                    let state = &mut *self.state.borrow_mut();
                    state.tasks[slot as usize].wait = wait;
                    state.leave_queue(slot, &self.lock_waiters);
                    state.tasks[slot as usize].wait = Wait::Nothing;
                }
                self.throw();
            }
            match self.block(wait, deadline) {
                Woken::Handed => return true,
                woken @ (Woken::TimedOut | Woken::Cancelled) => {
                    // Readers may have waited only because this task, as a writer, was before them.
                    if self.lock_waiters.may_be(id) {
                        self.hand_over(id, hint, take, block);
                    }
                    if woken == Woken::TimedOut {
                        return false;
                    }
                    self.throw_if_cancelled(woken);
                }
                Woken::Notified => self.throw_if_cancelled(Woken::Notified),
            }
            if take(hold) {
                self.state.borrow_mut().note_held(slot, id, hold, hint);
                return true;
            }
        }
    }

    /// Whether `slot`, by waiting so, would close a circle of tasks that wait for one another; then the Sim
    /// fails with the circle.
    pub(crate) fn closes_cycle(&self, state: &mut State, slot: Slot, wait: Wait) -> bool {
        let mut path: Vec<(Slot, Wait, Vec<Slot>)> = vec![(slot, wait, state.blockers(slot, wait))];
        let mut seen = Vec::new();
        while let Some((_, _, blockers)) = path.last_mut() {
            let Some(next) = blockers.pop() else {
                path.pop();
                continue;
            };
            if next == slot {
                let circle: Vec<(Slot, Wait)> = path.iter().map(|(slot, wait, _)| (*slot, *wait)).collect();
                let report = state.circle(&circle);
                self.fail(state, FailureKind::Deadlock, report);
                return true;
            }
            if seen.contains(&next) || !state.is_stuck(next) {
                continue;
            }
            let task = &state.tasks[next as usize];
            seen.push(next);
            let wait = task.wait;
            path.push((next, wait, state.blockers(next, wait)));
        }
        false
    }

    /// Waits in a condition variable's queue. `release` runs once the task is in it.
    pub(crate) fn wait_on(
        &self,
        id: LockId,
        label: &'static str,
        deadline: Deadline,
        release: impl FnOnce(),
    ) -> Woken {
        self.state.borrow_mut().queues.join(id, self.current(), Hold::Shared);
        release();
        self.block(Wait::Condvar { id, label }, deadline)
    }

    /// Wakes up to `most` tasks that wait for a condition variable; how many it woke.
    pub(crate) fn notify(&self, id: LockId, most: usize) -> usize {
        self.point();
        let state = &mut *self.state.borrow_mut();
        let mut woken = 0;
        while woken < most {
            let index = match state.queues.len(id) {
                0 => break,
                waiting if self.searching() => state.random.below(waiting as u64) as usize,
                _ => 0,
            };
            let Some((slot, _)) = state.queues.remove(id, index) else { break };
            self.wake(state, slot, Woken::Notified);
            woken += 1;
        }
        woken
    }
}
