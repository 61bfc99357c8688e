//! A Sim at work: its tasks and the loop that runs them. What tasks do to it is in `blocking.rs`, `queue.rs`
//! and `ending.rs`.
//!
//! One OS thread runs everything. A task that blocks chooses its successor itself and leaves the slot in
//! `next`; the loop in `Sim::run` only switches stacks. State is borrowed for moments, never across a switch.

use super::clock::Timer;
use super::ending::run_task;
use super::failure::{Failure, FailureKind};
use super::queue::{Hold, LockId, LockWaiters, Queues};
use super::schedule::Policy;
use super::stacks;
use super::watchdog::Watched;
use crate::cpu::HostProfile;
use crate::random::Generator;
use crate::raw::Fiber;
use crate::trace::Trace;
use std::cell::{Cell, RefCell};
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

/// Index of a live task. Slots are used again; ids are not.
pub(crate) type Slot = u32;
/// No task.
pub(crate) const NONE: Slot = u32::MAX;

/// Why a blocked task runs again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Woken {
    /// What it waited for happened; for a lock: it may be free.
    Notified,
    /// The lock that it waited for was taken on its behalf.
    Handed,
    /// Its deadline passed.
    TimedOut,
    /// The Sim is ending.
    Cancelled,
}

/// What a task waits for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wait {
    /// Nothing: it runs or could run.
    Nothing,
    Lock {
        id: LockId,
        hold: Hold,
    },
    Condvar {
        id: LockId,
        label: &'static str,
    },
    Join {
        slot: Slot,
        id: u64,
    },
    Sleep,
    Cpu,
}

pub(crate) struct Task {
    pub(crate) id: u64,
    pub(crate) name: Arc<str>,
    pub(crate) wait: Wait,
    pub(crate) since: u64,
    pub(crate) deadline: u64,
    pub(crate) woken: Woken,
    /// Raised at each wake-up, so that a timer set for an earlier wait is known to be stale.
    pub(super) generation: u32,
    pub(crate) alive: bool,
    /// Cancellation neither wakes nor unwinds it: it is already unwinding, or is about to take a mutex back.
    pub(crate) shielded: bool,
    /// What its last panic said; perhaps it was caught since.
    pub(super) panicked: Option<String>,
    pub(crate) held: Vec<(LockId, Hold)>,
    pub(super) joiners: Vec<Slot>,
    pub(crate) priority: u64,
    pub(crate) core: usize,
    pub(crate) switches: u64,
}

pub(crate) struct State {
    pub(crate) tasks: Vec<Task>,
    pub(super) free: Vec<Slot>,
    pub(crate) ready: Vec<Slot>,
    pub(super) timers: BinaryHeap<Timer>,
    pub(crate) queues: Queues,
    pub(crate) random: Generator,
    pub(crate) policy: Policy,
    pub(crate) trace: Option<Trace>,
    pub(crate) core_free_at: Vec<u64>,
    pub(super) next_id: u64,
    pub(super) live: usize,
    pub(super) failure: Option<Failure>,
}

/// How a Sim behaves; fixed before it runs.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) seed: u64,
    pub(crate) stack_bytes: usize,
    pub(crate) time_limit_ns: u64,
    pub(crate) livelock_yields: u64,
    pub(crate) host: HostProfile,
    pub(crate) blocking_limit: Option<Duration>,
}

pub(crate) struct Core {
    pub(crate) settings: Settings,
    pub(super) now: Cell<u64>,
    pub(super) current: Cell<Slot>,
    pub(super) next: Cell<Slot>,
    pub(super) searching: Cell<bool>,
    /// The main task has ended or something failed.
    pub(super) stop: Cell<bool>,
    pub(super) main: Cell<Slot>,
    pub(super) cancelling: Cell<bool>,
    /// Yields since anything else happened.
    pub(super) spins: Cell<u64>,
    pub(super) switches: Cell<u64>,
    /// Points passed, once the main task has ended.
    pub(super) points: Cell<u64>,
    pub(crate) lock_waiters: LockWaiters,
    pub(crate) state: RefCell<State>,
    pub(super) fibers: RefCell<Vec<Option<Box<Fiber>>>>,
    pub(super) user_random: RefCell<Generator>,
    pub(super) watched: Option<Arc<Watched>>,
}

impl Core {
    pub(crate) fn new(settings: Settings, policy: Policy, trace: Option<Trace>) -> Self {
        let mut seeds = Generator::new(settings.seed);
        let (random, user_random) = (Generator::new(seeds.next()), Generator::new(seeds.next()));
        let cores = settings.host.cores.max(1);
        Self {
            searching: Cell::new(policy.searches()),
            watched: settings.blocking_limit.map(|limit| Watched::new(settings.seed, limit)),
            settings,
            now: Cell::new(0),
            current: Cell::new(NONE),
            next: Cell::new(NONE),
            stop: Cell::new(false),
            main: Cell::new(NONE),
            cancelling: Cell::new(false),
            spins: Cell::new(0),
            switches: Cell::new(0),
            points: Cell::new(0),
            lock_waiters: LockWaiters::default(),
            state: RefCell::new(State {
                tasks: Vec::new(),
                free: Vec::new(),
                ready: Vec::new(),
                timers: BinaryHeap::new(),
                queues: Queues::default(),
                random,
                policy,
                trace,
                core_free_at: vec![0; cores],
                next_id: 1,
                live: 0,
                failure: None,
            }),
            fibers: RefCell::new(Vec::new()),
            user_random: RefCell::new(user_random),
        }
    }

    pub(crate) fn now(&self) -> u64 {
        self.now.get()
    }

    pub(crate) fn current(&self) -> Slot {
        self.current.get()
    }

    pub(crate) fn current_id(&self) -> u64 {
        self.state.borrow().tasks.get(self.current.get() as usize).map_or(0, |task| task.id)
    }

    pub(crate) fn searching(&self) -> bool {
        self.searching.get()
    }

    pub(crate) fn random(&self) -> u64 {
        self.user_random.borrow_mut().next()
    }

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

    pub(crate) fn points(&self) -> u64 {
        self.points.get()
    }

    pub(crate) fn stack_bytes(&self) -> usize {
        self.settings.stack_bytes
    }

    pub(crate) fn has_ended(&self, slot: Slot, id: u64) -> bool {
        let state = self.state.borrow();
        !state.tasks.get(slot as usize).is_some_and(|task| task.alive && task.id == id)
    }

    /// Adds to the trace, if there is one, on behalf of the current task (id and name).
    pub(crate) fn trace(&self, add: impl FnOnce(&mut Trace, (u64, &str))) {
        let state = &mut *self.state.borrow_mut();
        if let Some(trace) = &mut state.trace
            && let Some(task) = state.tasks.get(self.current.get() as usize)
        {
            add(trace, (task.id, &task.name));
        }
    }

    pub(crate) fn take_trace(&self) -> Option<Trace> {
        self.state.borrow_mut().trace.take()
    }
}
