//! The memtable: what was written and is not in a table yet. Its keys are in a concurrent skip list
//! (crossbeam's, AugeFS §V-A), each with its versions.
//!
//! The same keys are in hash tables too. A search in the list follows some thirty links, most of them to
//! memory that no cache holds; most writes are newer versions of keys that are there, and need none.

use std::hash::{BuildHasher as _, Hasher as _};
use std::ops::Bound;
use std::sync::Arc;

use amphi_rt::sync::{Mutex, Padded, RwLock};
use crossbeam_skiplist::SkipMap;
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry as Slot;
use smallvec::SmallVec;

use crate::entry::Entry;
use crate::in_flight::InFlight;
use crate::key::Key;

/// Hash tables, so that tasks rarely meet at the lock of one.
const SHARDS: usize = 64;

/// Keys by their hash.
type Shard = RwLock<HashTable<Arc<Record>>>;

/// Changes in memory.
#[derive(Debug)]
pub struct Memtable {
    order: SkipMap<Key, Arc<Record>>,
    by_hash: Box<[Padded<Shard>]>,
    in_flight: InFlight,
}

/// A key and what was written under it.
#[derive(Debug)]
struct Record {
    key: Key,
    hash: u64,
    /// The newest last.
    versions: Mutex<SmallVec<[Version; 1]>>,
}

#[derive(Debug)]
struct Version {
    seq: u64,
    /// `None`: the key is deleted.
    value: Option<Box<[u8]>>,
}

/// Where a reader is that goes through all versions in order.
#[derive(Debug)]
pub struct At {
    record: Arc<Record>,
    /// The version that is there.
    pub entry: Entry,
}

impl Default for Memtable {
    fn default() -> Self {
        let by_hash = (0..SHARDS).map(|_| Padded::default()).collect();
        Self { order: SkipMap::new(), by_hash, in_flight: InFlight::default() }
    }
}

/// By what a key is found. The same in each run, so that runs in virtual time repeat.
fn hash(key: &[u8]) -> u64 {
    let mut hasher = FixedState::default().build_hasher();
    hasher.write(key);
    hasher.finish()
}

impl Memtable {
    /// The writers that are at it.
    pub fn in_flight(&self) -> &InFlight {
        &self.in_flight
    }

    fn shard(&self, hash: u64) -> &Shard {
        // The table itself goes by the low bits and the top seven.
        &self.by_hash[(hash >> 32) as usize % SHARDS]
    }

    /// Inserts a change. Any number of tasks may at once.
    pub fn insert(&self, seq: u64, key: &[u8], value: Option<&[u8]>) {
        let version = Version { seq, value: value.map(Into::into) };
        let (key, hash) = (Key::new(key), hash(key));
        let mut shard = self.shard(hash).write();
        let record = match shard.entry(hash, |record| record.key == key, |record| record.hash) {
            Slot::Occupied(found) => return found.get().add(version),
            Slot::Vacant(place) => {
                let versions = Mutex::new(SmallVec::from_buf([version]));
                let record = Arc::new(Record { key: key.clone(), hash, versions });
                place.insert(Arc::clone(&record));
                record
            }
        };
        drop(shard);
        // Who goes through the list has waited for the writers that are at it.
        self.order.insert(key, record);
    }

    /// The newest version up to `seq` of a key: its value, or that it is deleted.
    pub fn get(&self, key: &[u8], seq: u64) -> Option<Option<Vec<u8>>> {
        let (wanted, hash) = (Key::new(key), hash(key));
        let shard = self.shard(hash).read();
        let versions = shard.find(hash, |record| record.key == wanted)?.versions.lock();
        let newest = versions.iter().rev().find(|version| version.seq <= seq)?;
        Some(newest.value.as_deref().map(<[u8]>::to_vec))
    }

    /// Where the first version at or behind a key is. Changes of the writers that are at it are left out.
    pub fn seek(&self, from: &[u8]) -> Option<At> {
        self.first_of(Bound::Included(&Key::new(from)))
    }

    /// Where the version behind this one is.
    pub fn behind(&self, at: &At) -> Option<At> {
        let older = at.record.before(at.entry.seq);
        older.or_else(|| self.first_of(Bound::Excluded(&at.record.key)))
    }

    fn first_of(&self, from: Bound<&Key>) -> Option<At> {
        self.order.lower_bound(from)?.value().before(u64::MAX)
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

impl Record {
    /// Adds a version in its place: mostly it is the newest one. One that is there already is left, as when
    /// a log is read that was moved in part.
    fn add(&self, version: Version) {
        let mut versions = self.versions.lock();
        let newer = versions.iter().rev().take_while(|other| other.seq > version.seq).count();
        let place = versions.len() - newer;
        if place == 0 || versions[place - 1].seq != version.seq {
            versions.insert(place, version);
        }
    }

    /// The newest version that is older than `seq`.
    fn before(self: &Arc<Self>, seq: u64) -> Option<At> {
        let versions = self.versions.lock();
        let older = versions.partition_point(|version| version.seq < seq);
        let Version { seq, value } = versions[..older].last()?;
        let value = value.as_deref().map(<[u8]>::to_vec);
        let entry = Entry { key: self.key.bytes(), seq: *seq, value };
        Some(At { record: Arc::clone(self), entry })
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_memtable_tells_what_a_sorted_map_of_versions_tells(
            changes in vec((vec(0_u8..3, 0..4), any::<Option<u8>>()), 0..60),
            order in any::<prop::sample::Index>(),
            wanted in vec(0_u8..3, 0..4), until in 0..70_u64,
        ) {
            let memtable = Memtable::default();
            let mut model = BTreeMap::new();
            let mut numbered: Vec<_> = changes.into_iter().zip(1_u64..).collect();
            // As if two tasks inserted: from somewhere in the middle on first.
            let middle = if numbered.is_empty() { 0 } else { order.index(numbered.len()) };
            numbered.rotate_left(middle);
            for ((key, value), seq) in numbered {
                let value = value.map(|byte| vec![byte]);
                memtable.insert(seq, &key, value.as_deref());
                memtable.insert(seq, &key, value.as_deref());
                model.insert((key, Reverse(seq)), value);
            }
            let found = std::iter::successors(memtable.seek(&wanted), |at| memtable.behind(at));
            let found = found.map(|At { entry, .. }| ((entry.key, Reverse(entry.seq)), entry.value));
            let found: Vec<_> = found.collect();
            let all = model.range((wanted.clone(), Reverse(u64::MAX))..);
            prop_assert_eq!(found, all.map(|(key, value)| (key.clone(), value.clone())).collect::<Vec<_>>());
            let newest = model.range((wanted.clone(), Reverse(until))..).next();
            let newest = newest.filter(|((key, _), _)| *key == wanted).map(|(_, value)| value.clone());
            prop_assert_eq!(memtable.get(&wanted, until), newest);
        }
    }
}
