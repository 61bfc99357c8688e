//! Tasks that borrow from the task that started them, and the main task of a Sim: the two places where a
//! lifetime is forgotten.

use super::current::enter;
use super::in_sim;
use crate::sim::core::Core;
use crate::sim::failure::Failure;
use crate::sync::{Condvar, Mutex};
use crate::task::{JoinHandle, spawn};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

/// Stack of a Sim's main task: tests and workloads run on it as they would on a process's first thread.
const MAIN_STACK_BYTES: usize = 8 << 20;

/// Runs a Sim with `main` as its first task; `main`'s value is there unless it did not get that far.
pub(crate) fn run_main<T>(core: &Core, main: impl FnOnce() -> T) -> (Option<Failure>, Option<T>) {
    let mut value = None;
    let failure = enter(core, || {
        let body: Box<dyn FnOnce() + '_> = Box::new(|| value = Some(main()));
        // SAFETY: only the lifetime changes. What `body` borrows outlives `core.run`, which returns only once
        // the main task has ended, or has been abandoned and never runs again.
        let body: Box<dyn FnOnce() + 'static> = unsafe { std::mem::transmute(body) };
        let (slot, _) = core.spawn("main", MAIN_STACK_BYTES, body);
        core.run(slot)
    });
    (failure, value)
}

/// Where to start tasks that may borrow what outlives [`scope`].
pub struct Scope<'scope, 'env: 'scope> {
    shared: Arc<Shared>,
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl std::fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scope").field("running", &self.shared.state.lock().running).finish()
    }
}

struct Shared {
    state: Mutex<Running>,
    changed: Condvar,
}

struct Running {
    running: usize,
    panicked: bool,
}

/// Tells the scope that a task no longer uses what it borrowed.
struct Finish(Arc<Shared>);

impl Drop for Finish {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.running -= 1;
        state.panicked |= std::thread::panicking();
        if state.running == 0 {
            self.0.changed.notify_all();
        }
    }
}

/// A scoped task that can be waited for.
#[derive(Debug)]
pub struct ScopedJoinHandle<'scope, T> {
    handle: JoinHandle<()>,
    value: Arc<parking_lot::Mutex<Option<T>>>,
    scope: PhantomData<&'scope ()>,
}

impl<T> ScopedJoinHandle<'_, T> {
    /// Waits for the task and returns its value.
    ///
    /// # Panics
    /// If the task panicked.
    pub fn join(self) -> T {
        self.handle.join();
        let value = self.value.lock().take();
        value.expect("a task that ended without a panic leaves a value")
    }

    /// Whether the task has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Starts a task that ends before [`scope`] returns. `name` appears in traces and panic messages.
    pub fn spawn<T: Send + 'scope>(
        &'scope self,
        name: &str,
        f: impl FnOnce() -> T + Send + 'scope,
    ) -> ScopedJoinHandle<'scope, T> {
        let value = Arc::new(parking_lot::Mutex::new(None));
        let (place, finish) = (Arc::clone(&value), Finish(Arc::clone(&self.shared)));
        self.shared.state.lock().running += 1;
        let body: Box<dyn FnOnce() + Send + 'scope> = Box::new(move || {
            // Dropped last: the others may hold what the scope lends.
            let _finish = finish;
            let place = place;
            let f = f;
            let result = f();
            *place.lock() = Some(result);
        });
        // SAFETY: only the lifetime changes. `scope` does not return before `_finish` was dropped, which is
        // after the last use of anything that `body` borrows.
        let body: Box<dyn FnOnce() + Send + 'static> = unsafe { std::mem::transmute(body) };
        ScopedJoinHandle { handle: spawn(name, body), value, scope: PhantomData }
    }
}

/// Runs `f`, which may start tasks that borrow from around it, and returns once all of them have ended.
///
/// # Panics
/// If `f` or one of the tasks panicked.
pub fn scope<'env, T>(f: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T) -> T {
    let shared = Arc::new(Shared {
        state: Mutex::new(Running { running: 0, panicked: false }),
        changed: Condvar::named("scoped tasks"),
    });
    let scope = Scope { shared: Arc::clone(&shared), scope: PhantomData, env: PhantomData };
    let result = catch_unwind(AssertUnwindSafe(|| f(&scope)));
    let wait = || {
        let mut state = shared.state.lock();
        shared.changed.wait_while(&mut state, |state| state.running > 0);
        state.panicked
    };
    // The end of the Sim unwinds the tasks of the scope, but not, before they are gone, the task that they
    // borrow from.
    let panicked = if in_sim(|_| ()).is_some() {
        in_sim(|core| core.uncancellable(wait)).unwrap_or(true)
    } else {
        wait()
    };
    match result {
        Err(cause) => resume_unwind(cause),
        Ok(_) if panicked => panic!("a scoped task panicked"),
        Ok(value) => value,
    }
}
