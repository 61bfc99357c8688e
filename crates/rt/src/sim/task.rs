//! What a Sim knows of a task: what it waits for, which locks it holds.

use std::sync::Arc;

/// Names a lock while it lives: its address. Never shown, because it differs between two runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct LockId(pub(super) usize);

impl LockId {
    pub(crate) fn of<T>(object: &T) -> Self {
        Self(std::ptr::from_ref(object) as usize)
    }
}

/// How a lock is or would be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    Shared,
    /// Shared, and not stopped by a waiting writer.
    SharedRecursive,
    Upgradable,
    Exclusive,
    /// Exclusive, by a task that already holds it upgradable.
    Upgrade,
}

/// Index of a live task. Slots are used again; ids are not.
pub(crate) type Slot = u32;
/// No task.
pub(crate) const NONE: Slot = u32::MAX;

/// Why a blocked task runs again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Woken {
    /// What it waited for happened; for a lock: it may be free.
    Notified,
    /// The lock that it waited for was taken on its behalf.
    Handed,
    /// Its deadline passed.
    TimedOut,
    /// The Sim is ending.
    Cancelled,
}

/// What a task waits for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wait {
    /// Nothing: it runs or could run.
    Nothing,
    Lock {
        id: LockId,
        hold: Hold,
    },
    Condvar {
        id: LockId,
        label: &'static str,
    },
    Join {
        slot: Slot,
        id: u64,
    },
    Sleep,
    Cpu,
}

pub(crate) struct Task {
    pub(crate) id: u64,
    pub(crate) name: Arc<str>,
    pub(crate) wait: Wait,
    pub(crate) since: u64,
    pub(crate) deadline: u64,
    pub(crate) woken: Woken,
    /// Raised at each wake-up, so that a timer set for an earlier wait is known to be stale.
    pub(super) generation: u32,
    pub(crate) alive: bool,
    /// Cancellation neither wakes nor unwinds it: it is already unwinding, or is about to take a mutex back.
    pub(crate) shielded: bool,
    /// What its last panic said; perhaps it was caught since.
    pub(super) panicked: Option<String>,
    pub(crate) held: Vec<(LockId, Hold)>,
    pub(super) joiners: Vec<Slot>,
    pub(crate) priority: u64,
    pub(crate) core: usize,
    pub(crate) switches: u64,
}
