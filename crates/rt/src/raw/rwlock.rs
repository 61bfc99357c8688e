//! The raw reader-writer lock: parking_lot's in real time; in a Sim the same word, with the Sim's queue
//! behind it.

use super::in_sim;
use crate::sim::core::Core;
use crate::sim::task::{Hold, LockId};
use crate::time::Deadline;
use lock_api::{GuardNoSend, RawRwLock as _, RawRwLockRecursive as _, RawRwLockUpgrade as _};
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// A reader-writer lock without data. In both worlds a waiting writer stops new readers, except recursive
/// ones.
pub struct RawRwLock {
    inner: parking_lot::RawRwLock,
    /// The task that took it last in a Sim: where to look first for who holds it.
    hint: AtomicU32,
}

impl RawRwLock {
    fn id(&self) -> LockId {
        LockId::of(self)
    }

    #[inline]
    fn try_raw(&self, hold: Hold) -> bool {
        match hold {
            Hold::Shared => self.inner.try_lock_shared(),
            Hold::SharedRecursive => self.inner.try_lock_shared_recursive(),
            Hold::Upgradable => self.inner.try_lock_upgradable(),
            Hold::Exclusive => self.inner.try_lock_exclusive(),
            // SAFETY: only a task that holds the upgradable lock asks for this.
            Hold::Upgrade => unsafe { self.inner.try_upgrade() },
        }
    }

    /// Blocks the OS thread: the lock is held by somebody outside the Sim, who will release it in real time.
    #[cold]
    fn block_raw(&self, hold: Hold) {
        match hold {
            Hold::Shared => self.inner.lock_shared(),
            Hold::SharedRecursive => self.inner.lock_shared_recursive(),
            Hold::Upgradable => self.inner.lock_upgradable(),
            Hold::Exclusive => self.inner.lock_exclusive(),
            // SAFETY: only a task that holds the upgradable lock asks for this.
            Hold::Upgrade => unsafe { self.inner.upgrade() },
        }
    }

    #[inline]
    fn lock_virtual(&self, core: &Core, hold: Hold, deadline: Deadline) -> bool {
        core.point();
        if !core.must_queue(self.id(), hold) && self.try_raw(hold) {
            core.acquired(self.id(), hold, &self.hint);
            return true;
        }
        core.lock_slow(self.id(), hold, &self.hint, deadline, &|h| self.try_raw(h), &|h| self.block_raw(h))
    }

    fn try_both(&self, hold: Hold) -> bool {
        let queued = in_sim(|core| {
            core.point();
            core.must_queue(self.id(), hold)
        });
        if queued == Some(true) || !self.try_raw(hold) {
            return false;
        }
        in_sim(|core| core.acquired(self.id(), hold, &self.hint));
        true
    }

    #[inline]
    fn released(&self) {
        in_sim(|core| core.released(self.id(), &self.hint, &|h| self.try_raw(h), &|h| self.block_raw(h)));
    }
}

// SAFETY: `inner` is the lock; the Sim only decides who tries it when, and counts a task as holder only after
// `inner` was taken.
unsafe impl lock_api::RawRwLock for RawRwLock {
    const INIT: Self = Self { inner: parking_lot::RawRwLock::INIT, hint: AtomicU32::new(0) };
    type GuardMarker = GuardNoSend;

    #[inline]
    fn lock_shared(&self) {
        if in_sim(|core| self.lock_virtual(core, Hold::Shared, Deadline::NEVER)).is_none() {
            self.inner.lock_shared();
        }
    }

    #[inline]
    fn try_lock_shared(&self) -> bool {
        self.try_both(Hold::Shared)
    }

    #[inline]
    unsafe fn unlock_shared(&self) {
        // SAFETY: the caller holds the lock so.
        unsafe { self.inner.unlock_shared() };
        self.released();
    }

    #[inline]
    fn lock_exclusive(&self) {
        if in_sim(|core| self.lock_virtual(core, Hold::Exclusive, Deadline::NEVER)).is_none() {
            self.inner.lock_exclusive();
        }
    }

    #[inline]
    fn try_lock_exclusive(&self) -> bool {
        self.try_both(Hold::Exclusive)
    }

    #[inline]
    unsafe fn unlock_exclusive(&self) {
        // SAFETY: the caller holds the lock so.
        unsafe { self.inner.unlock_exclusive() };
        self.released();
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.inner.is_locked()
    }

    #[inline]
    fn is_locked_exclusive(&self) -> bool {
        self.inner.is_locked_exclusive()
    }
}

// SAFETY: as above; readers already inside let another in whoever waits.
unsafe impl lock_api::RawRwLockRecursive for RawRwLock {
    fn lock_shared_recursive(&self) {
        if in_sim(|core| self.lock_virtual(core, Hold::SharedRecursive, Deadline::NEVER)).is_none() {
            self.inner.lock_shared_recursive();
        }
    }

    fn try_lock_shared_recursive(&self) -> bool {
        self.try_both(Hold::SharedRecursive)
    }
}

// SAFETY: `inner` goes from exclusive to shared without a gap.
unsafe impl lock_api::RawRwLockDowngrade for RawRwLock {
    unsafe fn downgrade(&self) {
        // SAFETY: the caller holds the lock exclusively.
        unsafe { self.inner.downgrade() };
        in_sim(|core| core.weakened(self.id(), &self.hint, &|h| self.try_raw(h)));
    }
}

// SAFETY: `inner` allows one upgradable holder beside readers.
unsafe impl lock_api::RawRwLockUpgrade for RawRwLock {
    fn lock_upgradable(&self) {
        if in_sim(|core| self.lock_virtual(core, Hold::Upgradable, Deadline::NEVER)).is_none() {
            self.inner.lock_upgradable();
        }
    }

    fn try_lock_upgradable(&self) -> bool {
        self.try_both(Hold::Upgradable)
    }

    unsafe fn unlock_upgradable(&self) {
        // SAFETY: the caller holds the lock so.
        unsafe { self.inner.unlock_upgradable() };
        self.released();
    }

    unsafe fn upgrade(&self) {
        if in_sim(|core| self.lock_virtual(core, Hold::Upgrade, Deadline::NEVER)).is_none() {
            // SAFETY: the caller holds the upgradable lock.
            unsafe { self.inner.upgrade() };
        }
    }

    unsafe fn try_upgrade(&self) -> bool {
        in_sim(Core::point);
        self.try_raw(Hold::Upgrade)
    }
}

// SAFETY: `inner` does each step without a gap.
unsafe impl lock_api::RawRwLockUpgradeDowngrade for RawRwLock {
    unsafe fn downgrade_upgradable(&self) {
        // SAFETY: the caller holds the upgradable lock.
        unsafe { self.inner.downgrade_upgradable() };
        in_sim(|core| core.weakened(self.id(), &self.hint, &|h| self.try_raw(h)));
    }

    unsafe fn downgrade_to_upgradable(&self) {
        // SAFETY: the caller holds the lock exclusively.
        unsafe { self.inner.downgrade_to_upgradable() };
        in_sim(|core| core.weakened(self.id(), &self.hint, &|h| self.try_raw(h)));
    }
}

// SAFETY: as for the untimed calls.
unsafe impl lock_api::RawRwLockTimed for RawRwLock {
    type Duration = Duration;
    type Instant = Deadline;

    fn try_lock_shared_for(&self, timeout: Duration) -> bool {
        in_sim(|core| self.lock_virtual(core, Hold::Shared, Deadline::after(timeout)))
            .unwrap_or_else(|| self.inner.try_lock_shared_for(timeout))
    }

    fn try_lock_shared_until(&self, deadline: Deadline) -> bool {
        self.try_lock_shared_for(deadline.left_or_ages())
    }

    fn try_lock_exclusive_for(&self, timeout: Duration) -> bool {
        in_sim(|core| self.lock_virtual(core, Hold::Exclusive, Deadline::after(timeout)))
            .unwrap_or_else(|| self.inner.try_lock_exclusive_for(timeout))
    }

    fn try_lock_exclusive_until(&self, deadline: Deadline) -> bool {
        self.try_lock_exclusive_for(deadline.left_or_ages())
    }
}
