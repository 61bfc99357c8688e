//! What happens once, and what everybody waits for.

use super::{Condvar, Mutex};
use std::sync::OnceLock;

/// A value made by the first task that asks for it; the others wait. If making it panics, the next task
/// tries.
#[derive(Debug)]
pub struct OnceCell<T> {
    making: Mutex<()>,
    // `OnceLock` alone would block the OS thread of a Sim; here only the holder of `making` ever sets it.
    value: OnceLock<T>,
}

impl<T> Default for OnceCell<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> OnceCell<T> {
    /// A cell without a value.
    #[must_use]
    pub const fn new() -> Self {
        Self { making: Mutex::new(()), value: OnceLock::new() }
    }

    /// The value, if it has been made.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        self.value.get()
    }

    /// The value, made by `make` if this is the first call.
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        if let Some(value) = self.value.get() {
            return value;
        }
        let _making = self.making.lock();
        if self.value.get().is_none() {
            let value = make();
            let _ = self.value.set(value);
        }
        self.value.get().expect("set above, or by the task that held the lock before")
    }
}

/// Something done by the first task that comes by, and finished when any call returns.
#[derive(Debug, Default)]
pub struct Once(OnceCell<()>);

impl Once {
    /// Not done yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(OnceCell::new())
    }

    /// Does it, unless it is done; waits if somebody is doing it.
    pub fn call_once(&self, f: impl FnOnce()) {
        self.0.get_or_init(f);
    }

    /// Whether it is done.
    #[must_use]
    pub fn is_completed(&self) -> bool {
        self.0.get().is_some()
    }
}

/// A place where so many tasks wait until all have come.
#[derive(Debug)]
pub struct Barrier {
    tasks: usize,
    /// Tasks that have come, and how often the barrier has opened.
    state: Mutex<(usize, u64)>,
    opened: Condvar,
}

impl Barrier {
    /// A barrier for so many tasks.
    #[must_use]
    pub const fn new(tasks: usize) -> Self {
        Self { tasks, state: Mutex::new((0, 0)), opened: Condvar::named("barrier") }
    }

    /// Waits until all have come; true for the last one.
    pub fn wait(&self) -> bool {
        let mut state = self.state.lock();
        state.0 += 1;
        if state.0 >= self.tasks {
            state.0 = 0;
            state.1 += 1;
            self.opened.notify_all();
            return true;
        }
        let round = state.1;
        self.opened.wait_while(&mut state, |state| state.1 == round);
        false
    }
}
