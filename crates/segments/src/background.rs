//! A file system that is mounted, and its background task: what waits in memory is written back, and
//! checkpoints are made, now and then.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use amphi_names::{Health, Store};
use amphi_rt::sync::{Condvar, Mutex};
use amphi_rt::task::{self, JoinHandle};
use amphi_vfs::Result;

/// What ends the task.
#[derive(Default)]
struct Bell {
    stopped: Mutex<bool>,
    bell: Condvar,
}

impl Bell {
    /// Tells the task to stop.
    fn stop(&self) {
        *self.stopped.lock() = true;
        self.bell.notify_all();
    }

    /// Waits for so long. False once it is time to stop.
    fn wait(&self, ns: u64) -> bool {
        let mut stopped = self.stopped.lock();
        if !*stopped {
            self.bell.wait_for(&mut stopped, Duration::from_nanos(ns));
        }
        !*stopped
    }

    /// What the task does until it is told to stop: `sync`, as often as every `interval_ns`.
    fn run(&self, interval_ns: u64, health: &Health, sync: impl Fn() -> Result<()>) {
        while self.wait(interval_ns) {
            if health.writable().is_ok() {
                // A failure has turned the file system read-only, which the next operation reports.
                let _reported_by_the_next_operation = sync();
            }
        }
    }
}

/// The heart of a mounted file system, with its background task, which ends with it.
pub struct Running<S> {
    core: Arc<S>,
    bell: Arc<Bell>,
    task: Option<JoinHandle<()>>,
}

impl<S: Store> Running<S> {
    /// Has a task of this name do `sync` as often as every `interval_ns`; 0: there is no task.
    pub fn new(core: Arc<S>, name: &'static str, interval_ns: u64, sync: fn(&S) -> Result<()>) -> Self {
        let bell = Arc::new(Bell::default());
        let task = (interval_ns > 0).then(|| {
            let (core, bell) = (Arc::clone(&core), Arc::clone(&bell));
            task::spawn(name, move || bell.run(interval_ns, &core.names().health, || sync(&core)))
        });
        Self { core, bell, task }
    }
}

impl<S> Running<S> {
    /// Ends the task.
    pub fn stop(&mut self) {
        if let Some(task) = self.task.take() {
            self.bell.stop();
            task.join();
        }
    }
}

impl<S> Deref for Running<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.core
    }
}

impl<S> Drop for Running<S> {
    fn drop(&mut self) {
        self.stop();
    }
}
