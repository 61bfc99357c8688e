//! The memtable: what was written and is not in a table yet, in a concurrent skip list (crossbeam's), and the
//! barrier that says when the writers that were given to it have finished (`in_flight_writes`, AugeFS §V-A).

use std::ops::Bound;
use std::sync::atomic::Ordering::SeqCst;

use amphi_rt::sync::atomic::{AtomicBool, AtomicU64};
use amphi_rt::sync::{Condvar, Mutex};
use crossbeam_skiplist::SkipMap;

use crate::bloom;
use crate::entry::Entry;
use crate::versioned::Versioned;

/// Sorted changes in memory.
#[derive(Debug, Default)]
pub struct Memtable {
    map: SkipMap<Versioned, Option<Box<[u8]>>>,
    /// Says of most absent keys that they are absent: a name that is made is looked for first.
    filter: bloom::Shared,
    in_flight: InFlight,
}

impl Memtable {
    /// One that is full with so many bytes of keys and values.
    pub fn new(bytes: usize) -> Self {
        Self { filter: bloom::Shared::new(bytes), ..Self::default() }
    }

    /// The writers that are at it.
    pub fn in_flight(&self) -> &InFlight {
        &self.in_flight
    }

    /// Inserts a change. Any number of tasks may at once.
    pub fn insert(&self, seq: u64, key: &[u8], value: Option<&[u8]>) {
        self.filter.add(bloom::hash(key));
        self.map.insert(Versioned::new(key, seq), value.map(Into::into));
    }

    /// The newest version up to `seq` of a key with this hash: its value, or that it is deleted.
    pub fn get(&self, key: &[u8], hash: u64, seq: u64) -> Option<Option<Vec<u8>>> {
        if !self.filter.may_contain(hash) {
            return None;
        }
        let wanted = Versioned::new(key, seq);
        let found = self.map.lower_bound(Bound::Included(&wanted))?;
        found.key().has_key_of(&wanted).then(|| found.value().as_deref().map(<[u8]>::to_vec))
    }

    /// The first version at or behind `from`.
    pub fn seek(&self, from: &[u8]) -> Option<Entry> {
        self.map.lower_bound(Bound::Included(&Versioned::new(from, u64::MAX))).map(|found| entry(&found))
    }

    /// The version behind this one.
    pub fn behind(&self, entry_before: &Entry) -> Option<Entry> {
        let before = Versioned::new(&entry_before.key, entry_before.seq);
        self.map.lower_bound(Bound::Excluded(&before)).map(|found| entry(&found))
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }
}

fn entry(found: &crossbeam_skiplist::map::Entry<'_, Versioned, Option<Box<[u8]>>>) -> Entry {
    let key = found.key();
    Entry { key: key.bytes(), seq: key.seq(), value: found.value().as_deref().map(<[u8]>::to_vec) }
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
