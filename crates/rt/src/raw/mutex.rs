//! The raw mutex: parking_lot's in real time; in a Sim the same byte, with the Sim's queue behind it.

use super::in_sim;
use crate::sim::core::Core;
use crate::sim::task::{Hold, LockId};
use crate::time::Deadline;
use lock_api::{GuardNoSend, RawMutex as _};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A mutex without data. Locking it costs what parking_lot's costs and one look at a thread-local.
pub struct RawMutex {
    inner: parking_lot::RawMutex,
    /// The task that took it last in a Sim: where to look first for who holds it.
    hint: AtomicU32,
}

impl RawMutex {
    fn id(&self) -> LockId {
        LockId::of(self)
    }

    #[inline]
    fn lock_virtual(&self, core: &Core, deadline: Deadline) -> bool {
        core.point();
        if self.inner.try_lock() {
            core.acquired(self.id(), Hold::Exclusive, &self.hint);
            return true;
        }
        self.lock_contended(core, deadline)
    }

    #[cold]
    fn lock_contended(&self, core: &Core, deadline: Deadline) -> bool {
        core.lock_slow(self.id(), Hold::Exclusive, &self.hint, deadline, &|_| self.inner.try_lock(), &|_| {
            self.inner.lock()
        })
    }
}

// SAFETY: `inner` is the lock; the Sim only decides who tries it when, and counts a task as holder only after
// `inner` was taken.
unsafe impl lock_api::RawMutex for RawMutex {
    const INIT: Self = Self { inner: parking_lot::RawMutex::INIT, hint: AtomicU32::new(0) };
    type GuardMarker = GuardNoSend;

    #[inline]
    fn lock(&self) {
        if in_sim(|core| self.lock_virtual(core, Deadline::NEVER)).is_none() {
            self.inner.lock();
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        in_sim(Core::point);
        if !self.inner.try_lock() {
            return false;
        }
        in_sim(|core| core.acquired(self.id(), Hold::Exclusive, &self.hint));
        true
    }

    #[inline]
    unsafe fn unlock(&self) {
        // SAFETY: the caller holds the lock.
        unsafe { self.inner.unlock() };
        in_sim(|core| {
            core.released(self.id(), &self.hint, &|_| self.inner.try_lock(), &|_| self.inner.lock())
        });
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.inner.is_locked()
    }
}

// SAFETY: as above.
unsafe impl lock_api::RawMutexTimed for RawMutex {
    type Duration = Duration;
    type Instant = Deadline;

    fn try_lock_for(&self, timeout: Duration) -> bool {
        in_sim(|core| self.lock_virtual(core, Deadline::after(timeout)))
            .unwrap_or_else(|| self.inner.try_lock_for(timeout))
    }

    fn try_lock_until(&self, deadline: Deadline) -> bool {
        in_sim(|core| self.lock_virtual(core, deadline)).unwrap_or_else(|| match deadline.left() {
            Some(left) => self.inner.try_lock_for(left),
            None => {
                self.inner.lock();
                true
            }
        })
    }
}

impl std::fmt::Debug for RawMutex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawMutex")
            .field("locked", &self.inner.is_locked())
            .field("hint", &self.hint.load(Ordering::Relaxed))
            .finish()
    }
}
