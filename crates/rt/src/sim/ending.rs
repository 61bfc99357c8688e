//! How tasks and Sims end: by returning, by panics and other failures, and by unwinding what is left.

use super::core::{Core, State};
use super::failure::{Failure, FailureKind, NO_TEXT};
use super::schedule::Policy;
use super::task::{NONE, Slot, Task, Wait, Woken};
use crate::raw::in_sim;
use crate::time::Deadline;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Once;

/// Thrown through a task that must end because the Sim ends.
struct Cancelled;

impl Task {
    /// Whether its own stack is being unwound by a panic. The standard library counts panics per OS thread,
    /// so a task that gave way in a destructor makes all others look as if they panicked.
    fn is_panicking(&self) -> bool {
        self.panicked.is_some() && std::thread::panicking()
    }
}

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

    /// Unwinds every task that is left. Those that cannot be unwound (they wait, while unwinding, for
    /// something that will not come) are abandoned with their stacks.
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
    pub(crate) fn fail(&self, state: &mut State, mut kind: FailureKind, mut message: String) {
        self.stop.set(true);
        if kind != FailureKind::Panic
            && let Some(text) = state
                .tasks
                .iter()
                .filter(|task| task.alive && task.is_panicking())
                .find_map(|task| task.panicked.clone())
        {
            // What a destructor waits for in vain is not the cause.
            message = format!("{text}\n  and then, in its destructors: {message}");
            kind = FailureKind::Panic;
        }
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

    /// Unwinds the current task if the Sim is ending and the task is not being unwound already.
    #[inline(always)]
    pub(crate) fn throw_if_cancelled(&self, woken: Woken) {
        if self.cancelling.get() || woken == Woken::Cancelled {
            self.throw();
        }
    }

    /// Unwinds the current task, unless that would be a panic within a panic or between two steps that belong
    /// together.
    #[cold]
    pub(super) fn throw(&self) {
        if self.can_throw() {
            self.state.borrow_mut().tasks[self.current.get() as usize].shielded = true;
            resume_unwind(Box::new(Cancelled));
        }
    }

    /// Whether [`Core::throw`] would unwind the current task.
    pub(super) fn can_throw(&self) -> bool {
        let task = &self.state.borrow().tasks[self.current.get() as usize];
        !task.shielded && !task.is_panicking()
    }

    /// Notes that the current task panics. Called from the panic hook, so the state may be borrowed by who
    /// panics.
    pub(crate) fn note_panic(&self, text: String) {
        if let Ok(mut state) = self.state.try_borrow_mut()
            && let Some(task) = state.tasks.get_mut(self.current.get() as usize)
        {
            task.panicked = Some(text);
        }
    }

    /// Stops the current task for ever: the Sim ends, and what the task waits for will not come.
    pub(crate) fn abandon(&self) -> ! {
        self.state.borrow_mut().tasks[self.current.get() as usize].shielded = true;
        loop {
            self.block(Wait::Sleep, Deadline::NEVER);
        }
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
    let cancelled = in_sim(Core::is_cancelling) == Some(true);
    let result = catch_unwind(AssertUnwindSafe(move || if cancelled { drop(body) } else { body() }));
    in_sim(|core| {
        if let Err(payload) = result
            && !payload.is::<Cancelled>()
        {
            let state = &mut *core.state.borrow_mut();
            let text = state.tasks[core.current() as usize].panicked.take();
            core.fail(state, FailureKind::Panic, text.unwrap_or_else(|| panic_text(&*payload)));
        }
        core.finish();
    });
}

/// What a payload says that no hook saw: that of `resume_unwind`.
fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&'static str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    format!("panicked: {}", text.unwrap_or(NO_TEXT))
}

/// Makes panics inside Sims leave their text and place with their task. Done once per process, and in front
/// of whatever hook there is.
pub(crate) fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            in_sim(|core| {
                let place = info
                    .location()
                    .map_or(String::new(), |place| format!(" at {}:{}", place.file(), place.line()));
                core.note_panic(format!("panicked{place}: {}", info.payload_as_str().unwrap_or(NO_TEXT)));
            });
            previous(info);
        }));
    });
}
