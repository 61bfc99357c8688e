//! The clock: who runs next, and when those run again who wait for a moment.

use super::core::{Core, State};
use super::failure::FailureKind;
use super::task::{NONE, Slot, Wait, Woken};
use super::timer::Timer;

impl Core {
    /// Leaves in `next` the task to run now, moving the clock if nobody can run at this instant.
    #[inline]
    pub(super) fn choose_next(&self) {
        let state = &mut *self.state.borrow_mut();
        if state.ready.is_empty() && !self.advance(state) {
            self.next.set(NONE);
            return;
        }
        let index = state.policy.choose(&state.ready, &state.tasks, &mut state.random);
        let slot = state.ready.swap_remove(index);
        self.next.set(slot);
    }

    /// Moves the clock to the earliest timer and makes everybody ready who waits for that moment. False if
    /// there is none.
    pub(super) fn advance(&self, state: &mut State) -> bool {
        let mut moved = false;
        while let Some(timer) = state.timers.peek().copied() {
            let stale = timer.is_stale(&state.tasks);
            if !stale {
                if moved && timer.at() != self.now.get() {
                    break;
                }
                if timer.at() > self.settings.time_limit_ns && !self.cancelling.get() {
                    let report = format!(
                        "virtual time reached its limit of {} ns: does a periodic task run while the others wait for ever?{}",
                        self.settings.time_limit_ns,
                        state.who_waits()
                    );
                    self.fail(state, FailureKind::TimeLimit, report);
                    return moved;
                }
                moved = true;
                self.now.set(self.now.get().max(timer.at()));
            }
            state.timers.pop();
            if !stale {
                if matches!(state.tasks[timer.slot() as usize].wait, Wait::Lock { .. } | Wait::Condvar { .. })
                {
                    state.leave_queue(timer.slot(), &self.lock_waiters);
                }
                self.wake(state, timer.slot(), Woken::TimedOut);
            }
        }
        moved
    }

    /// Makes a blocked task ready.
    pub(crate) fn wake(&self, state: &mut State, slot: Slot, woken: Woken) {
        self.spins.set(0);
        let task = &mut state.tasks[slot as usize];
        debug_assert!(!matches!(task.wait, Wait::Nothing), "only a waiting task is woken");
        task.generation = task.generation.wrapping_add(1);
        if woken != Woken::TimedOut
            && self.settings.host.wake_ns > 0
            && !matches!(task.wait, Wait::Sleep | Wait::Cpu)
            && !self.cancelling.get()
        {
            // The waker is done with it, but the processor needs a while to bring it back.
            let at = self.now.get() + self.settings.host.wake_ns;
            task.wait = Wait::Cpu;
            task.woken = woken;
            let generation = task.generation;
            state.timers.push(Timer::new(at, slot, generation));
            return;
        }
        if !matches!(task.wait, Wait::Cpu) {
            task.woken = woken;
        }
        task.wait = Wait::Nothing;
        task.deadline = u64::MAX;
        state.ready.push(slot);
    }

    /// Whether no other task can run up to and including `at`, so that the clock may simply be moved there.
    pub(super) fn nothing_before(&self, at: u64) -> bool {
        let state = &mut *self.state.borrow_mut();
        if !state.ready.is_empty() || self.cancelling.get() || at > self.settings.time_limit_ns {
            return false;
        }
        while let Some(timer) = state.timers.peek() {
            if !timer.is_stale(&state.tasks) {
                return timer.at() > at;
            }
            state.timers.pop();
        }
        true
    }
}

impl State {
    /// Forgets timers of waits that ended early, once they are the majority.
    pub(super) fn drop_stale_timers(&mut self) {
        if self.timers.len() > 64 + 4 * self.live {
            let tasks = &self.tasks;
            self.timers.retain(|timer| !timer.is_stale(tasks));
        }
    }
}
