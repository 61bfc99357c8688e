//! The background task: what waits in memory is written back, and checkpoints are made, now and then.

use std::time::Duration;

use amphi_names::Health;
use amphi_rt::sync::{Condvar, Mutex};
use amphi_vfs::Result;

/// What ends the task.
#[derive(Default)]
pub struct Bell {
    stopped: Mutex<bool>,
    bell: Condvar,
}

impl Bell {
    /// Tells the task to stop.
    pub fn stop(&self) {
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
    pub fn run(&self, interval_ns: u64, health: &Health, sync: impl Fn() -> Result<()>) {
        while self.wait(interval_ns) {
            if health.writable().is_ok() {
                // A failure has turned the file system read-only, which the next operation reports.
                let _reported_by_the_next_operation = sync();
            }
        }
    }
}
