//! The background task: what waits in memory is written back, and a checkpoint is made, now and then.

use std::time::Duration;

use amphi_device::BlockPort;
use amphi_rt::sync::{Condvar, Mutex};

use crate::checkpoint;
use crate::core::Core;

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
}

/// What the task does until it is told to stop.
pub fn run<D: BlockPort>(core: &Core<D>) {
    while core.bell.wait(core.options.interval_ns) {
        if core.names.health.writable().is_ok() {
            // A failure has turned the file system read-only, which the next operation reports.
            let _reported_by_the_next_operation = checkpoint::sync(core);
        }
    }
}
