//! How tasks and Sims end: by returning, by panics and other failures, and by unwinding what is left.

use super::core::{Core, NONE, Slot, State, Wait, Woken};
use super::failure::{Failure, FailureKind};
use super::schedule::Policy;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Thrown through a task that must end because the Sim ends.
struct Cancelled;

impl Core {
    #[cold]
    pub(super) fn blocked(&self, slot: Slot, ms: u64) {
        let state = &mut *self.state.borrow_mut();
        let name = &state.tasks[slot as usize].name;
        let report = format!(
            "task '{name}' blocked its OS thread for {ms} ms, in a lock or call that virtual time does not know: nobody else could \
             run; use amphi_rt::sync instead"
        );
        self.fail(state, FailureKind::Blocked, report);
    }

    /// Unwinds every task that is left. Those that cannot be unwound (they wait, while unwinding, for something that will not come)
    /// are abandoned with their stacks.
    pub(super) fn cancel_all(&self) {
        const MOST_SWITCHES: usize = 1 << 20;
        self.cancelling.set(true);
        self.searching.set(false);
        self.points.set(self.state.borrow().policy.points());
        let mut state = self.state.borrow_mut();
        state.policy = Policy::in_order();
        if self.next.get() != NONE {
            state.ready.push(self.next.replace(NONE));
        }
        for slot in 0..state.tasks.len() {
            let task = &state.tasks[slot];
            if task.alive && !task.shielded && !matches!(task.wait, Wait::Nothing) {
                state.leave_queue(slot as Slot, &self.lock_waiters);
                self.wake(&mut state, slot as Slot, Woken::Cancelled);
            }
        }
        drop(state);
        self.choose_next();
        for _ in 0..MOST_SWITCHES {
            if self.next.get() == NONE {
                break;
            }
            self.switch();
        }
        self.next.set(NONE);
        for fiber in self.fibers.borrow_mut().drain(..).flatten() {
            fiber.into_stack();
        }
    }

    /// Ends the Sim with a failure, unless an earlier one already does.
    pub(crate) fn fail(&self, state: &mut State, kind: FailureKind, message: String) {
        self.stop.set(true);
        if state.failure.is_none() {
            let (task, task_id) = match state.tasks.get(self.current.get() as usize) {
                Some(task) => (task.name.to_string(), task.id),
                None => ("scheduler".to_owned(), 0),
            };
            state.failure = Some(Failure {
                kind,
                seed: self.settings.seed,
                time_ns: self.now.get(),
                task,
                task_id,
                message,
            });
        }
    }

    /// Unwinds the current task after a failure that it found itself in.
    pub(crate) fn stop_here(&self) {
        if !std::thread::panicking() {
            self.state.borrow_mut().tasks[self.current.get() as usize].shielded = true;
            resume_unwind(Box::new(Cancelled));
        }
    }

    /// Unwinds the current task if the Sim is ending and the task is not being unwound already.
    #[inline(always)]
    pub(crate) fn throw_if_cancelled(&self, woken: Woken) {
        if self.cancelling.get() || woken == Woken::Cancelled {
            self.throw();
        }
    }

    #[cold]
    pub(super) fn throw(&self) {
        if std::thread::panicking() {
            return;
        }
        {
            let task = &mut self.state.borrow_mut().tasks[self.current.get() as usize];
            if std::mem::replace(&mut task.shielded, true) {
                return;
            }
        }
        resume_unwind(Box::new(Cancelled));
    }

    /// Runs `f` in such a way that the end of the Sim does not unwind the task meanwhile.
    pub(crate) fn uncancellable<R>(&self, f: impl FnOnce() -> R) -> R {
        let slot = self.current.get() as usize;
        let before = std::mem::replace(&mut self.state.borrow_mut().tasks[slot].shielded, true);
        let result = f();
        self.state.borrow_mut().tasks[slot].shielded = before;
        result
    }

    pub(crate) fn is_cancelling(&self) -> bool {
        self.cancelling.get()
    }

    /// The end of the current task: wakes who joins it and chooses the next one.
    pub(super) fn finish(&self) {
        let slot = self.current.get();
        {
            let state = &mut *self.state.borrow_mut();
            let task = &mut state.tasks[slot as usize];
            task.alive = false;
            task.generation = task.generation.wrapping_add(1);
            state.live -= 1;
            if let Some(trace) = &mut state.trace {
                trace.task_ended(self.now.get(), state.tasks[slot as usize].id);
            }
            for joiner in std::mem::take(&mut state.tasks[slot as usize].joiners) {
                // One that was cancelled meanwhile no longer waits for this.
                if matches!(state.tasks[joiner as usize].wait, Wait::Join { slot: s, .. } if s == slot) {
                    self.wake(state, joiner, Woken::Notified);
                }
            }
        }
        self.spins.set(0);
        if slot == self.main.get() {
            self.stop.set(true);
        }
        self.choose_next();
    }
}

/// What runs on a task's stack.
pub(super) fn run_task(body: Box<dyn FnOnce()>) {
    let cancelled = crate::raw::in_sim(Core::is_cancelling) == Some(true);
    let result = catch_unwind(AssertUnwindSafe(move || if cancelled { drop(body) } else { body() }));
    crate::raw::in_sim(|core| {
        if let Err(payload) = result
            && !payload.is::<Cancelled>()
        {
            core.fail(&mut core.state.borrow_mut(), FailureKind::Panic, panic_text(&*payload));
        }
        core.finish();
    });
}

fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&'static str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned());
    super::failure::with_location(text.unwrap_or_else(|| "a panic with a value that is not text".to_owned()))
}
