//! How a task gives the processor away: it blocks, sleeps, yields, joins, or is preempted by a search.
//!
//! The frames between a task and the switch are inlined: after a switch the processor predicts each return
//! wrongly.

use super::core::Core;
use super::failure::FailureKind;
use super::task::{NONE, Slot, Wait, Woken};
use super::timer::Timer;
use crate::raw::suspend;
use crate::time::Deadline;

/// Points in a row, with nothing else happening, after which a task of high priority gives way in a search.
const POINTS_BEFORE_GIVING_WAY: u64 = 10_000;
/// Yields in a row, per runnable task, after which the clock moves although somebody could run: they all wait
/// for time to pass.
const SPINS_BEFORE_TIME_MOVES: u64 = 64;

impl Core {
    /// Blocks the current task until somebody wakes it or the deadline passes.
    #[inline]
    pub(crate) fn block(&self, wait: Wait, deadline: Deadline) -> Woken {
        let slot = self.current.get();
        let now = self.now.get();
        {
            let state = &mut *self.state.borrow_mut();
            let task = &mut state.tasks[slot as usize];
            task.wait = wait;
            task.since = now;
            task.deadline = deadline.ns();
            task.woken = Woken::TimedOut;
            task.switches += 1;
            if deadline.ns() != u64::MAX {
                let generation = task.generation;
                state.timers.push(Timer::new(deadline.ns(), slot, generation));
                state.drop_stale_timers();
            }
        }
        self.choose_next();
        self.leave(slot);
        let state = &mut *self.state.borrow_mut();
        let woken = state.tasks[slot as usize].woken;
        if let Some(trace) = &mut state.trace {
            trace.waited(now, self.now.get(), state.tasks[slot as usize].id, &wait);
        }
        woken
    }

    /// Gives the processor to the task in `next`, unless that is the caller.
    #[inline(always)]
    fn leave(&self, slot: Slot) {
        if self.next.get() != slot || self.stop.get() {
            suspend();
        }
    }

    /// A place where another task may be chosen to run, in a search; elsewhere nothing.
    #[inline(always)]
    pub(crate) fn point(&self) {
        if self.searching.get() {
            self.search_point();
        }
    }

    #[cold]
    fn search_point(&self) {
        let slot = self.current.get();
        if slot == NONE {
            return;
        }
        let spins = self.spins.get() + 1;
        self.spins.set(spins);
        let delay = {
            let state = &mut *self.state.borrow_mut();
            let priority = &mut state.tasks[slot as usize].priority;
            let delay = state.policy.preempt(priority, &mut state.random);
            if spins.is_multiple_of(POINTS_BEFORE_GIVING_WAY) {
                // Perhaps it spins until another task, of lower priority, does something.
                state.policy.yielded(priority);
            }
            delay
        };
        if spins > self.settings.livelock_yields && !self.cancelling.get() {
            self.livelock(spins, "points passed");
        }
        // A task that could not be unwound after a failure gives way, so that the Sim can end.
        let Some(delay) = (if self.stop.get() { Some(0) } else { delay }) else { return };
        if delay > 0 {
            let woken = self.block(Wait::Cpu, Deadline::at_ns(self.now.get() + delay));
            self.throw_if_cancelled(woken);
            return;
        }
        self.requeue(slot);
        if self.next.get() != slot {
            let now = self.now.get();
            self.trace(|trace, (id, _)| trace.instant(now, id, "preempted"));
        }
        self.leave(slot);
        self.throw_if_cancelled(Woken::Notified);
    }

    /// Makes the running task one of those that could run, and chooses among them.
    #[inline(always)]
    fn requeue(&self, slot: Slot) {
        {
            let state = &mut *self.state.borrow_mut();
            state.ready.push(slot);
            state.tasks[slot as usize].switches += 1;
        }
        self.choose_next();
    }

    /// Lets the others run.
    #[inline]
    pub(crate) fn yield_now(&self) {
        let slot = self.current.get();
        let spins = self.spins.get() + 1;
        self.spins.set(spins);
        let ready = {
            let state = &mut *self.state.borrow_mut();
            state.policy.yielded(&mut state.tasks[slot as usize].priority);
            state.ready.len() as u64 + 1
        };
        if spins > SPINS_BEFORE_TIME_MOVES * ready && !self.cancelling.get() {
            // Everybody who can run has nothing better to do than to let others run: they wait for time to
            // pass.
            let moved = self.advance(&mut self.state.borrow_mut());
            if !moved && spins > self.settings.livelock_yields {
                self.livelock(spins, "yields");
            }
        }
        self.requeue(slot);
        self.leave(slot);
        self.throw_if_cancelled(Woken::Notified);
    }

    /// Ends the Sim because of so many yields or points in a row.
    #[cold]
    fn livelock(&self, count: u64, what: &str) {
        self.spins.set(0);
        {
            let state = &mut *self.state.borrow_mut();
            let report =
                format!("livelock: {count} {what} in a row and nothing else happened{}", state.who_waits());
            self.fail(state, FailureKind::Livelock, report);
        }
        self.throw();
    }

    #[inline]
    pub(crate) fn sleep(&self, wait: Wait, deadline: Deadline) {
        let slot = self.current.get();
        if deadline.ns() <= self.now.get() {
            return;
        }
        if self.nothing_before(deadline.ns()) {
            let start = self.now.replace(deadline.ns());
            self.spins.set(0);
            let state = &mut *self.state.borrow_mut();
            if let Some(trace) = &mut state.trace {
                trace.waited(start, deadline.ns(), state.tasks[slot as usize].id, &wait);
            }
        } else {
            let woken = self.block(wait, deadline);
            self.throw_if_cancelled(woken);
        }
    }

    /// Waits until the task has ended.
    pub(crate) fn join(&self, slot: Slot, id: u64) {
        self.point();
        let current = self.current.get();
        let (waits, deadlock) = {
            let state = &mut *self.state.borrow_mut();
            let mut waits = false;
            if let Some(task) = state.tasks.get_mut(slot as usize).filter(|task| task.alive && task.id == id)
            {
                task.joiners.push(current);
                waits = true;
            }
            (waits, waits && self.closes_cycle(state, current, Wait::Join { slot, id }))
        };
        if deadlock {
            self.throw();
        }
        if waits {
            let woken = self.block(Wait::Join { slot, id }, Deadline::NEVER);
            self.throw_if_cancelled(woken);
        } else {
            self.throw_if_cancelled(Woken::Notified);
        }
    }
}
