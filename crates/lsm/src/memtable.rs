//! The memtable: what was written and is not in a table yet, in a concurrent skip list (crossbeam's), and the
//! barrier that says when the writers that were given to it have finished (`in_flight_writes`, AugeFS §V-A).

use std::cmp::Reverse;
use std::ops::Bound;
use std::sync::atomic::Ordering::SeqCst;

use amphi_rt::sync::atomic::{AtomicBool, AtomicU64};
use amphi_rt::sync::{Condvar, Mutex};
use crossbeam_skiplist::SkipMap;

use crate::entry::Entry;

/// By key, the newest version first.
type Versioned = (Box<[u8]>, Reverse<u64>);

/// Sorted changes in memory.
#[derive(Debug, Default)]
pub struct Memtable {
    map: SkipMap<Versioned, Option<Box<[u8]>>>,
    in_flight: InFlight,
}

impl Memtable {
    /// The writers that are at it.
    pub fn in_flight(&self) -> &InFlight {
        &self.in_flight
    }

    /// Inserts a change. Any number of tasks may at once.
    pub fn insert(&self, seq: u64, key: &[u8], value: Option<&[u8]>) {
        self.map.insert((key.into(), Reverse(seq)), value.map(Into::into));
    }

    /// The newest version of a key up to `seq`: its value, or that it is deleted.
    pub fn get(&self, key: &[u8], seq: u64) -> Option<Option<Vec<u8>>> {
        let found = self.map.lower_bound(Bound::Included(&(key.into(), Reverse(seq))))?;
        (*found.key().0 == *key).then(|| found.value().as_deref().map(<[u8]>::to_vec))
    }

    /// The first version at or behind `from`.
    pub fn seek(&self, from: &[u8]) -> Option<Entry> {
        self.map.lower_bound(Bound::Included(&(from.into(), Reverse(u64::MAX)))).map(|found| entry(&found))
    }

    /// The version behind this one.
    pub fn behind(&self, entry_before: &Entry) -> Option<Entry> {
        let before = (entry_before.key.as_slice().into(), Reverse(entry_before.seq));
        self.map.lower_bound(Bound::Excluded(&before)).map(|found| entry(&found))
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }
}

fn entry(found: &crossbeam_skiplist::map::Entry<'_, Versioned, Option<Box<[u8]>>>) -> Entry {
    let (key, Reverse(seq)) = found.key();
    Entry { key: key.to_vec(), seq: *seq, value: found.value().as_deref().map(<[u8]>::to_vec) }
}

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
