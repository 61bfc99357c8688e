//! Tasks: OS threads in real time, coroutines in virtual time.

/// A task that can be waited for.
#[derive(Debug)]
pub struct JoinHandle<T>(std::thread::JoinHandle<T>);

impl<T> JoinHandle<T> {
    /// Waits for the task and returns its value.
    ///
    /// # Panics
    /// If the task panicked.
    pub fn join(self) -> T {
        self.0.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause))
    }
}

/// Starts a task. `name` appears in traces and panic messages.
pub fn spawn<T: Send + 'static>(name: &str, f: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    JoinHandle(
        std::thread::Builder::new().name(name.to_owned()).spawn(f).expect("the system can start a thread"),
    )
}

/// Lets other tasks run.
pub fn yield_now() {
    std::thread::yield_now();
}

/// A number that names the running task: never zero, not used again while the process (or the Sim) lives.
#[must_use]
pub fn id() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local!(static ID: u64 = NEXT.fetch_add(1, Ordering::Relaxed));
    ID.with(|id| *id)
}
