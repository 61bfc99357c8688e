//! What a Sim is: its settings, its tasks, its clock. The loop that runs the tasks is in `running.rs`; what
//! they do to it is in `blocking.rs`, `queue.rs`, `clock.rs` and `ending.rs`. State is borrowed for moments,
//! never across a switch.

use super::failure::Failure;
use super::schedule::Policy;
use super::task::{NONE, Slot, Task};
use super::timer::Timer;
use super::trace_file::Trace;
use super::waiters::{LockWaiters, Queues};
use super::watchdog::Watched;
use crate::generator::Generator;
use crate::host::HostProfile;
use crate::raw::Fiber;
use std::cell::{Cell, RefCell};
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

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
