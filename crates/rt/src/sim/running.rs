//! The loop that runs tasks. One OS thread runs everything. A task that blocks chooses its successor itself
//! and leaves the slot in `next`; the loop only switches stacks.

use super::core::Core;
use super::ending::run_task;
use super::failure::{Failure, FailureKind};
use super::stacks;
use super::task::{NONE, Slot, Task, Wait, Woken};
use crate::raw::Fiber;
use std::sync::Arc;

impl Core {
    /// Makes a task that is ready to run `body`.
    pub(crate) fn spawn(&self, name: &str, stack_bytes: usize, body: Box<dyn FnOnce()>) -> (Slot, u64) {
        let stack = stacks::take(stack_bytes);
        let fiber = Box::new(Fiber::new(stack, Box::new(move || run_task(body))));
        let now = self.now.get();
        let state = &mut *self.state.borrow_mut();
        let id = state.next_id;
        state.next_id += 1;
        state.live += 1;
        let task = Task {
            id,
            name: Arc::from(name),
            wait: Wait::Nothing,
            since: now,
            deadline: u64::MAX,
            woken: Woken::Notified,
            generation: 0,
            alive: true,
            shielded: false,
            panicked: None,
            held: Vec::new(),
            joiners: Vec::new(),
            priority: state.policy.priority(&mut state.random),
            core: (id as usize - 1) % state.core_free_at.len(),
            switches: 0,
        };
        if let Some(trace) = &mut state.trace {
            trace.task_started(now, id, name);
        }
        let mut fibers = self.fibers.borrow_mut();
        let slot = match state.free.pop() {
            Some(slot) => {
                // Timers of the slot's last task may still be around, and must stay stale.
                let generation = state.tasks[slot as usize].generation;
                state.tasks[slot as usize] = Task { generation, ..task };
                fibers[slot as usize] = Some(fiber);
                slot
            }
            None => {
                state.tasks.push(task);
                fibers.push(Some(fiber));
                (state.tasks.len() - 1) as Slot
            }
        };
        state.ready.push(slot);
        self.spins.set(0);
        (slot, id)
    }

    /// Runs until the task in `main` has ended or something failed, then unwinds what is left.
    pub(crate) fn run(&self, main: Slot) -> Option<Failure> {
        self.main.set(main);
        self.choose_next();
        while !self.stop.get() {
            if self.next.get() == NONE {
                let state = &mut *self.state.borrow_mut();
                let report = format!("deadlock: nobody can run and nobody sleeps{}", state.who_waits());
                self.fail(state, FailureKind::Deadlock, report);
                break;
            }
            self.switch();
        }
        self.cancel_all();
        self.state.borrow_mut().failure.take()
    }

    /// Runs the task in `next` until it gives the processor back.
    #[inline(always)]
    pub(super) fn switch(&self) {
        let slot = self.next.get();
        let mut fiber =
            self.fibers.borrow_mut()[slot as usize].take().expect("a task that is ready has a stack");
        self.current.set(slot);
        self.switches.set(self.switches.get() + 1);
        if let Some(watched) = &self.watched {
            watched.beat(self.switches.get());
        }
        let ended = fiber.resume();
        if let Some(ms) = self.watched.as_ref().and_then(|watched| watched.blocked_ms()) {
            self.blocked(slot, ms);
        }
        self.current.set(NONE);
        if ended {
            if let Some(stack) = fiber.into_stack() {
                stacks::put(stack);
            }
            self.state.borrow_mut().free.push(slot);
        } else {
            self.fibers.borrow_mut()[slot as usize] = Some(fiber);
        }
    }
}
