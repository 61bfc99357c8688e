//! The condition variable: parking_lot_core's parking lot in real time, the Sim's queue in virtual time.

use super::{RawMutex, in_sim};
use crate::sim::task::{LockId, Woken};
use crate::time::Deadline;
use lock_api::{MutexGuard, RawMutex as _};
use parking_lot_core::{DEFAULT_PARK_TOKEN, DEFAULT_UNPARK_TOKEN, ParkResult};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Whether a wait ended because its time was over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// True when the time was over before a notification came.
    #[must_use]
    pub fn timed_out(self) -> bool {
        self.0
    }
}

/// A condition variable for [`crate::sync::Mutex`]. Waits may end without a notification: always wait in a
/// loop on the condition.
#[derive(Debug)]
pub struct Condvar {
    /// Whether an OS thread may be parked on this address; written under the parking lot's bucket lock.
    parked: AtomicBool,
    /// What waiting here means, for reports of deadlocks.
    label: &'static str,
}

impl Default for Condvar {
    fn default() -> Self {
        Self::new()
    }
}

impl Condvar {
    /// A condition variable that nobody waits for.
    #[must_use]
    pub const fn new() -> Self {
        Self::named("condition variable")
    }

    /// As [`Condvar::new`], with a name for it in traces and reports of deadlocks.
    #[must_use]
    pub const fn named(label: &'static str) -> Self {
        Self { parked: AtomicBool::new(false), label }
    }

    /// Releases the mutex, waits for a notification, takes the mutex again.
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, RawMutex, T>) {
        self.wait_deadline(guard, Deadline::NEVER);
    }

    /// As [`Condvar::wait`], at most for `timeout`.
    pub fn wait_for<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, RawMutex, T>,
        timeout: Duration,
    ) -> WaitTimeoutResult {
        self.wait_deadline(guard, Deadline::after(timeout))
    }

    /// As [`Condvar::wait`], at most until [`crate::time::now_ns`] reaches `deadline_ns`.
    pub fn wait_until_ns<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, RawMutex, T>,
        deadline_ns: u64,
    ) -> WaitTimeoutResult {
        self.wait_deadline(guard, Deadline::at_ns(deadline_ns))
    }

    /// Waits until `condition` on the data no longer holds.
    pub fn wait_while<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, RawMutex, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) {
        while condition(guard) {
            self.wait(guard);
        }
    }

    /// As [`Condvar::wait_while`], at most for `timeout`; timed out means that the condition still holds.
    pub fn wait_while_for<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, RawMutex, T>,
        mut condition: impl FnMut(&mut T) -> bool,
        timeout: Duration,
    ) -> WaitTimeoutResult {
        let deadline = Deadline::after(timeout);
        while condition(guard) {
            if self.wait_deadline(guard, deadline).timed_out() {
                return WaitTimeoutResult(condition(guard));
            }
        }
        WaitTimeoutResult(false)
    }

    /// As [`Condvar::wait`], at most until `deadline`.
    pub fn wait_deadline<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, RawMutex, T>,
        deadline: Deadline,
    ) -> WaitTimeoutResult {
        // SAFETY: the guard shows that this task holds the mutex; both worlds take it again before they
        // return or unwind.
        let mutex = unsafe { MutexGuard::mutex(guard).raw() };
        let in_virtual_time = in_sim(|core| {
            core.point();
            // SAFETY: as above.
            let woken = core.wait_on(LockId::of(self), self.label, deadline, || unsafe { mutex.unlock() });
            core.uncancellable(|| mutex.lock());
            core.throw_if_cancelled(woken);
            woken == Woken::TimedOut
        });
        WaitTimeoutResult(in_virtual_time.unwrap_or_else(|| self.park(mutex, deadline)))
    }

    fn park(&self, mutex: &RawMutex, deadline: Deadline) -> bool {
        let until = deadline.left().map(|left| Instant::now() + left);
        let key = std::ptr::from_ref(self) as usize;
        let validate = || {
            self.parked.store(true, Ordering::Relaxed);
            true
        };
        // SAFETY: the caller holds the mutex. Released only once this thread is queued, so no notification is
        // missed.
        let before_sleep = || unsafe { mutex.unlock() };
        let timed_out = |_, was_last: bool| {
            if was_last {
                self.parked.store(false, Ordering::Relaxed);
            }
        };
        // SAFETY: the key is an address that this object owns; no closure panics or enters the parking lot
        // for the same bucket: `unlock` may, for the mutex, but `before_sleep` runs without a bucket lock.
        let result = unsafe {
            parking_lot_core::park(key, validate, before_sleep, timed_out, DEFAULT_PARK_TOKEN, until)
        };
        mutex.lock();
        result == ParkResult::TimedOut
    }

    /// Wakes one waiting task, if there is one; whether there was.
    pub fn notify_one(&self) -> bool {
        if let Some(count) = in_sim(|core| core.notify(LockId::of(self), 1)) {
            return count > 0;
        }
        // A waiter sets the flag while it holds the mutex under which the condition was changed: relaxed is
        // enough.
        if !self.parked.load(Ordering::Relaxed) {
            return false;
        }
        let key = std::ptr::from_ref(self) as usize;
        let callback = |result: parking_lot_core::UnparkResult| {
            if !result.have_more_threads {
                self.parked.store(false, Ordering::Relaxed);
            }
            DEFAULT_UNPARK_TOKEN
        };
        // SAFETY: the key is an address that this object owns; the callback neither panics nor enters the
        // parking lot.
        unsafe { parking_lot_core::unpark_one(key, callback) }.unparked_threads > 0
    }

    /// Wakes all waiting tasks; how many there were.
    pub fn notify_all(&self) -> usize {
        if let Some(count) = in_sim(|core| core.notify(LockId::of(self), usize::MAX)) {
            return count;
        }
        if !self.parked.swap(false, Ordering::Relaxed) {
            return 0;
        }
        // SAFETY: the key is an address that this object owns.
        unsafe { parking_lot_core::unpark_all(std::ptr::from_ref(self) as usize, DEFAULT_UNPARK_TOKEN) }
    }
}
