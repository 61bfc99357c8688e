//! Tasks: OS threads in real time, coroutines in virtual time.

use crate::raw::in_sim;
pub use crate::raw::{Scope, ScopedJoinHandle, scope};
use crate::sim::core::Core;
use crate::sim::task::Slot;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A task that can be waited for. Dropping it lets the task run on.
#[derive(Debug)]
pub struct JoinHandle<T>(Kind<T>);

#[derive(Debug)]
enum Kind<T> {
    Thread(std::thread::JoinHandle<T>),
    Coroutine { slot: Slot, id: u64, value: Arc<Mutex<Option<T>>> },
}

impl<T> JoinHandle<T> {
    /// Waits for the task and returns its value.
    ///
    /// # Panics
    /// If the task panicked. (In a Sim a panic in any task ends the Sim.)
    pub fn join(self) -> T {
        match self.0 {
            Kind::Thread(thread) => thread.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause)),
            Kind::Coroutine { slot, id, value } => {
                in_sim(|core| core.join(slot, id));
                let value = value.lock().take();
                value.unwrap_or_else(|| {
                    // The Sim is ending and has unwound the task. This one would be too, were it not in a
                    // destructor.
                    in_sim(|core| core.abandon());
                    panic!("task {id} of a Sim that has ended left no value")
                })
            }
        }
    }

    /// Whether the task has ended.
    pub fn is_finished(&self) -> bool {
        match &self.0 {
            Kind::Thread(thread) => thread.is_finished(),
            Kind::Coroutine { slot, id, .. } => in_sim(|core| core.has_ended(*slot, *id)).unwrap_or(true),
        }
    }
}

/// Starts a task. `name` appears in traces and panic messages.
pub fn spawn<T: Send + 'static>(name: &str, f: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let in_virtual_time = in_sim(|core| core.stack_bytes());
    let Some(stack_bytes) = in_virtual_time else {
        return JoinHandle(Kind::Thread(
            std::thread::Builder::new().name(name.to_owned()).spawn(f).unwrap_or_else(|cause| {
                panic!("the system cannot start a thread for task '{name}': {cause}")
            }),
        ));
    };
    let value = Arc::new(Mutex::new(None));
    let place = Arc::clone(&value);
    let body = Box::new(move || {
        let result = f();
        *place.lock() = Some(result);
    });
    let (slot, id) =
        in_sim(|core| core.spawn(name, stack_bytes, body)).expect("the Sim does not end meanwhile");
    JoinHandle(Kind::Coroutine { slot, id, value })
}

/// Lets other tasks run.
#[inline]
pub fn yield_now() {
    if in_sim(Core::yield_now).is_none() {
        std::thread::yield_now();
    }
}

/// A place where a search ([`crate::Sim::explore`]) may let another task run: put one before each step of an
/// algorithm without locks. Elsewhere it costs one look at a thread-local.
#[inline]
pub fn point() {
    in_sim(Core::point);
}

/// A number that names the running task: never zero, not used again while the process (or the Sim) lives.
#[must_use]
pub fn id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local!(static ID: u64 = NEXT.fetch_add(1, Ordering::Relaxed));
    in_sim(Core::current_id).unwrap_or_else(|| ID.with(|id| *id))
}
