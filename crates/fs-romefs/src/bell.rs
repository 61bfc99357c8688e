//! What wakes the background task, and ends it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use amphi_rt::sync::{Condvar, Mutex};

/// What wakes the task.
#[derive(Default)]
pub struct Bell {
    rung: AtomicBool,
    stop: Mutex<bool>,
    bell: Condvar,
}

impl Bell {
    /// Wakes the task if there is something to do.
    pub fn ring_if(&self, wanted: bool) {
        if wanted && !self.rung.swap(true, Ordering::AcqRel) {
            drop(self.stop.lock());
            self.bell.notify_all();
        }
    }

    /// Waits until there is something to do, at most `interval_ns`. False once it is time to stop.
    pub fn wait(&self, interval_ns: u64) -> bool {
        let mut stop = self.stop.lock();
        if !*stop && !self.rung.load(Ordering::Acquire) {
            self.bell.wait_for(&mut stop, Duration::from_nanos(interval_ns));
        }
        self.rung.store(false, Ordering::Release);
        !*stop
    }

    /// Tells the task to stop.
    pub fn stop(&self) {
        *self.stop.lock() = true;
        self.bell.notify_all();
    }

    /// Whether it was told to.
    pub fn is_stopping(&self) -> bool {
        *self.stop.lock()
    }
}
