//! A counting semaphore with a high-water mark, as filebench's `sempost` and `semblock` use: posting waits while there is enough, and everybody stops waiting when the run
//! is over.

use std::time::Duration;

use amphi_rt::sync::{Condvar, Mutex};
use amphi_rt::time;

/// A semaphore.
#[derive(Default)]
pub(super) struct Semaphore {
    value: Mutex<u64>,
    changed: Condvar,
}

impl Semaphore {
    /// Adds `by`, waiting while there is `high_water` or more. False if `end_ns` came first.
    pub(super) fn post(&self, by: u64, high_water: u64, end_ns: u64) -> bool {
        self.change(end_ns, |value| (*value < high_water).then(|| *value += by))
    }

    /// Takes `by`, waiting until there is as much. False if `end_ns` came first.
    pub(super) fn take(&self, by: u64, end_ns: u64) -> bool {
        self.change(end_ns, |value| value.checked_sub(by).map(|left| *value = left))
    }

    fn change(&self, end_ns: u64, mut change: impl FnMut(&mut u64) -> Option<()>) -> bool {
        let mut value = self.value.lock();
        loop {
            if change(&mut value).is_some() {
                self.changed.notify_all();
                return true;
            }
            let now = time::now_ns();
            if now >= end_ns {
                return false;
            }
            self.changed.wait_for(&mut value, Duration::from_nanos(end_ns - now));
        }
    }
}
