//! Waiting for work in the background: for a time, until somebody has some, or until the mount ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use amphi_rt::sync::{Condvar, Mutex};

/// What tasks in the background wait at.
#[derive(Default)]
pub struct Background {
    /// Somebody called, and nobody has noticed yet.
    called: AtomicBool,
    stopped: Mutex<bool>,
    wake: Condvar,
}

impl Background {
    /// Waits to be called, at most `interval_ns`. Whether somebody called; none once it is time to stop.
    pub fn wait(&self, interval_ns: u64) -> Option<bool> {
        let mut stopped = self.stopped.lock();
        if !*stopped && !self.called.load(Ordering::Acquire) {
            self.wake.wait_for(&mut stopped, Duration::from_nanos(interval_ns));
        }
        let called = self.called.swap(false, Ordering::AcqRel);
        (!*stopped).then_some(called)
    }

    /// Calls whoever waits, or is the next to wait.
    #[inline]
    pub fn call(&self) {
        if !self.called.swap(true, Ordering::AcqRel) {
            drop(self.stopped.lock());
            self.wake.notify_all();
        }
    }

    /// Ends the wait of whoever waits just now.
    pub fn hurry(&self) {
        self.wake.notify_all();
    }

    /// Has everybody who waits stop.
    pub fn stop(&self) {
        *self.stopped.lock() = true;
        self.wake.notify_all();
    }

    /// Whether it is time to stop.
    pub fn is_stopped(&self) -> bool {
        *self.stopped.lock()
    }
}
