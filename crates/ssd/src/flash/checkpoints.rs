//! What mapping checkpoints have, and need from one to the next.

use std::sync::atomic::AtomicU64;

use amphi_rt::sync::{Mutex, MutexGuard};

/// The blocks that checkpoints have.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// Those of the checkpoint in force.
    pub(super) current: Vec<u32>,
    /// Those to be erased: of an older one, or of one that was never finished.
    pub(super) stale: Vec<u32>,
}

/// What checkpoints need from one to the next.
#[derive(Debug, Default)]
pub(crate) struct Checkpoints {
    pub(super) held: Mutex<Held>,
    /// Pages of the last one.
    pub(super) pages: AtomicU64,
}

impl Checkpoints {
    /// As power-up found them.
    pub(crate) fn new(current: Vec<u32>, stale: Vec<u32>) -> Self {
        Self { held: Mutex::new(Held { current, stale }), pages: AtomicU64::new(0) }
    }

    /// Keeps checkpoints from being taken.
    pub(crate) fn hold(&self) -> MutexGuard<'_, Held> {
        self.held.lock()
    }
}
