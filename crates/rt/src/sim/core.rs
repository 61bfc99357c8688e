//! The scheduler: tasks, the clock, what runs next. Locks and condition variables queue in `queue.rs`.
//!
//! One OS thread runs everything. A task that blocks chooses its successor itself and leaves the slot in `next`; the loop in
//! `Sim::run` only switches stacks. State is borrowed for moments, never across a switch.

use super::failure::{Failure, FailureKind};
use super::queue::{Hold, LockId, Queues};
use super::schedule::Policy;
use super::stacks;
use super::watchdog::Watched;
use crate::cpu::HostProfile;
use crate::random::Generator;
use crate::raw::{Fiber, suspend};
use crate::time::Deadline;
use crate::trace::Trace;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Index of a live task. Slots are used again; ids are not.
pub(crate) type Slot = u32;
/// No task.
pub(crate) const NONE: Slot = u32::MAX;
/// Yields in a row, per runnable task, after which the clock moves although somebody could run: they all wait for time to pass.
const SPINS_BEFORE_TIME_MOVES: u64 = 64;

/// Thrown through a task that must end because the Sim ends.
struct Cancelled;

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
    generation: u32,
    pub(crate) alive: bool,
    /// Cancellation neither wakes nor unwinds it: it is already unwinding, or is about to take a mutex back.
    pub(crate) shielded: bool,
    pub(crate) held: Vec<(LockId, Hold)>,
    joiners: Vec<Slot>,
    pub(crate) priority: u64,
    pub(crate) core: usize,
    pub(crate) switches: u64,
}

/// A moment at which a waiting task runs again: time, slot and generation in one number, so that the heap compares once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Timer(Reverse<u128>);

impl Timer {
    fn new(at: u64, slot: Slot, generation: u32) -> Self {
        Self(Reverse(u128::from(at) << 64 | u128::from(slot) << 32 | u128::from(generation)))
    }

    fn at(self) -> u64 {
        (self.0.0 >> 64) as u64
    }

    fn slot(self) -> Slot {
        (self.0.0 >> 32) as Slot
    }

    fn is_stale(self, tasks: &[Task]) -> bool {
        let task = &tasks[self.slot() as usize];
        !task.alive || task.generation != self.0.0 as u32
    }
}

pub(crate) struct State {
    pub(crate) tasks: Vec<Task>,
    free: Vec<Slot>,
    pub(crate) ready: Vec<Slot>,
    timers: BinaryHeap<Timer>,
    pub(crate) queues: Queues,
    pub(crate) random: Generator,
    pub(crate) policy: Policy,
    pub(crate) trace: Option<Trace>,
    pub(crate) core_free_at: Vec<u64>,
    next_id: u64,
    live: usize,
    failure: Option<Failure>,
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
    now: Cell<u64>,
    current: Cell<Slot>,
    next: Cell<Slot>,
    searching: Cell<bool>,
    /// The main task has ended or something failed.
    stop: Cell<bool>,
    main: Cell<Slot>,
    cancelling: Cell<bool>,
    /// Yields since anything else happened.
    spins: Cell<u64>,
    switches: Cell<u64>,
    /// Points passed, once the main task has ended.
    points: Cell<u64>,
    pub(crate) lock_waiters: Cell<usize>,
    pub(crate) state: RefCell<State>,
    fibers: RefCell<Vec<Option<Box<Fiber>>>>,
    user_random: RefCell<Generator>,
    watched: Option<Arc<Watched>>,
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
            lock_waiters: Cell::new(0),
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
                state.tasks[slot as usize] = task;
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
    fn switch(&self) {
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

    #[cold]
    fn blocked(&self, slot: Slot, ms: u64) {
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
    fn cancel_all(&self) {
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

    /// Leaves in `next` the task to run now, moving the clock if nobody can run at this instant.
    #[inline]
    fn choose_next(&self) {
        let state = &mut *self.state.borrow_mut();
        if state.ready.is_empty() && !self.advance(state) {
            self.next.set(NONE);
            return;
        }
        let index = state.policy.choose(&state.ready, &state.tasks, &mut state.random);
        let slot = state.ready.swap_remove(index);
        self.next.set(slot);
    }

    /// Moves the clock to the earliest timer and makes everybody ready who waits for that moment. False if there is none.
    fn advance(&self, state: &mut State) -> bool {
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
        if self.next.get() != slot {
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
        let delay = {
            let state = &mut *self.state.borrow_mut();
            let Some(delay) =
                state.policy.preempt(&mut state.tasks[slot as usize].priority, &mut state.random)
            else {
                return;
            };
            delay
        };
        if delay > 0 {
            let woken = self.block(Wait::Cpu, Deadline::at_ns(self.now.get() + delay));
            self.throw_if_cancelled(woken);
        } else {
            self.reschedule(slot);
        }
    }

    #[inline(always)]
    fn reschedule(&self, slot: Slot) {
        {
            let state = &mut *self.state.borrow_mut();
            state.ready.push(slot);
            state.tasks[slot as usize].switches += 1;
        }
        self.choose_next();
        self.leave(slot);
        self.throw_if_cancelled(Woken::Notified);
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
            // Everybody who can run has nothing better to do than to let others run: they wait for time to pass.
            let livelock = {
                let state = &mut *self.state.borrow_mut();
                let livelock = !self.advance(state) && spins > self.settings.livelock_yields;
                if livelock {
                    let report = format!(
                        "livelock: {spins} yields in a row and nothing else happened; nobody sleeps{}",
                        state.who_waits()
                    );
                    self.fail(state, FailureKind::Livelock, report);
                }
                livelock
            };
            if livelock {
                self.stop_here();
            }
        }
        self.reschedule(slot);
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

    /// Whether no other task can run up to and including `at`, so that the clock may simply be moved there.
    fn nothing_before(&self, at: u64) -> bool {
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

    /// Waits until the task has ended.
    pub(crate) fn join(&self, slot: Slot, id: u64) {
        self.point();
        let current = self.current.get();
        let (waits, deadlock) = {
            let state = &mut *self.state.borrow_mut();
            let task = &mut state.tasks[slot as usize];
            let waits = task.alive && task.id == id;
            if waits {
                task.joiners.push(current);
            }
            (waits, waits && self.closes_cycle(state, current, Wait::Join { slot, id }))
        };
        if deadlock {
            self.stop_here();
        }
        if waits {
            let woken = self.block(Wait::Join { slot, id }, Deadline::NEVER);
            self.throw_if_cancelled(woken);
        } else {
            self.throw_if_cancelled(Woken::Notified);
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
    fn throw(&self) {
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

    pub(crate) fn points(&self) -> u64 {
        self.points.get()
    }

    pub(crate) fn stack_bytes(&self) -> usize {
        self.settings.stack_bytes
    }

    pub(crate) fn has_ended(&self, slot: Slot, id: u64) -> bool {
        let state = self.state.borrow();
        let task = &state.tasks[slot as usize];
        !task.alive || task.id != id
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

    pub(crate) fn is_cancelling(&self) -> bool {
        self.cancelling.get()
    }

    /// The end of the current task: wakes who joins it and chooses the next one.
    fn finish(&self) {
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

impl State {
    /// Forgets timers of waits that ended early, once they are the majority.
    fn drop_stale_timers(&mut self) {
        if self.timers.len() > 64 + 4 * self.live {
            let tasks = &self.tasks;
            self.timers.retain(|timer| !timer.is_stale(tasks));
        }
    }
}

/// What runs on a task's stack.
fn run_task(body: Box<dyn FnOnce()>) {
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
