//! The barrier that says when the writers that were given to a memtable have finished (`in_flight_writes`,
//! AugeFS §V-A).

use std::sync::atomic::Ordering::SeqCst;

use amphi_rt::sync::atomic::{AtomicBool, AtomicU64};
use amphi_rt::sync::{Condvar, Mutex};

/// Counts changes that have a sequence number and are not inserted yet.
#[derive(Debug, Default)]
pub struct InFlight {
    count: AtomicU64,
    awaited: AtomicBool,
    gate: Mutex<()>,
    none: Condvar,
}

impl InFlight {
    /// `changes` more are on their way.
    pub fn begin(&self, changes: u64) {
        self.count.fetch_add(changes, SeqCst);
    }

    /// `changes` have arrived. Takes a lock only if they are the last ones and somebody waits.
    pub fn end(&self, changes: u64) {
        if self.count.fetch_sub(changes, SeqCst) == changes && self.awaited.load(SeqCst) {
            drop(self.gate.lock());
            self.none.notify_all();
        }
    }

    /// Waits until none is on its way. The caller sees to it that none begins and that nobody else waits.
    pub fn wait(&self) {
        self.awaited.store(true, SeqCst);
        let mut gate = self.gate.lock();
        while self.count.load(SeqCst) > 0 {
            self.none.wait(&mut gate);
        }
        drop(gate);
        self.awaited.store(false, SeqCst);
    }
}
