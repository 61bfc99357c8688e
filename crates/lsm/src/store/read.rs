//! Reading: one key, a range, a snapshot.

use std::sync::Arc;

use amphi_device::{BlockPort, MemoryArea};

use super::{Shared, Store, View};
use crate::entry::Entry;
use crate::merge::{Merge, Source};
use crate::{Result, bloom};

/// The state of a store at one moment: of what was acknowledged before it all, of what began after it
/// nothing.
#[derive(Debug)]
pub struct Snapshot<'a, D: BlockPort + MemoryArea + 'static> {
    shared: &'a Shared<D>,
    seq: u64,
}

impl<D: BlockPort + MemoryArea + 'static> Drop for Snapshot<'_, D> {
    fn drop(&mut self) {
        let mut snapshots = self.shared.snapshots.lock();
        if let Some(count) = snapshots.get_mut(&self.seq) {
            *count -= 1;
            if *count == 0 {
                snapshots.remove(&self.seq);
            }
        }
    }
}

/// Keys and values in order.
pub struct Range<'a, D: BlockPort + MemoryArea + 'static> {
    merge: Merge<D>,
    seq: u64,
    end: Option<Vec<u8>>,
    /// The key that was decided last.
    last: Option<Vec<u8>>,
    /// Of a range that nobody gave a snapshot.
    _own: Option<Snapshot<'a, D>>,
}

impl<D: BlockPort + MemoryArea + 'static> Iterator for Range<'_, D> {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let entry = match self.merge.next() {
                Ok(entry) => entry?,
                Err(error) => return Some(Err(error)),
            };
            if self.end.as_ref().is_some_and(|end| entry.key >= *end) {
                return None;
            }
            if entry.seq > self.seq || self.last.as_ref() == Some(&entry.key) {
                continue;
            }
            self.last = Some(entry.key.clone());
            if let Some(value) = entry.value {
                return Some(Ok((entry.key, value)));
            }
        }
    }
}

impl<D: BlockPort + MemoryArea + 'static> Store<D> {
    /// The value under a key.
    ///
    /// # Errors
    /// [`Damaged`](crate::Error::Damaged) for a table that is not what was written; the device's.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.shared.get(key, u64::MAX)
    }

    /// The value that was under a key at a snapshot.
    ///
    /// # Errors
    /// As for [`get`](Store::get).
    pub fn get_at(&self, snapshot: &Snapshot<'_, D>, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.shared.get(key, snapshot.seq)
    }

    /// The state as it is now. Waits for the writes that are on their way, and they for it.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot<'_, D> {
        let writing = self.shared.writing.lock();
        writing.memtable.in_flight().wait();
        let seq = writing.next_seq - 1;
        *self.shared.snapshots.lock().entry(seq).or_default() += 1;
        Snapshot { shared: &self.shared, seq }
    }

    /// The keys from `from` up to `end` (all further ones without it), as they are now.
    ///
    /// # Errors
    /// As for [`get`](Store::get); each step may meet one, too.
    pub fn range(&self, from: &[u8], end: Option<&[u8]>) -> Result<Range<'_, D>> {
        let snapshot = self.snapshot();
        let merge = self.merge(from, end)?;
        let (seq, end) = (snapshot.seq, end.map(<[u8]>::to_vec));
        Ok(Range { merge, seq, end, last: None, _own: Some(snapshot) })
    }

    /// The keys from `from` up to `end`, as they were at a snapshot that outlives the range.
    ///
    /// # Errors
    /// As for [`range`](Store::range).
    pub fn range_at<'a>(
        &'a self,
        snapshot: &'a Snapshot<'_, D>,
        from: &[u8],
        end: Option<&[u8]>,
    ) -> Result<Range<'a, D>> {
        let merge = self.merge(from, end)?;
        Ok(Range { merge, seq: snapshot.seq, end: end.map(<[u8]>::to_vec), last: None, _own: None })
    }

    fn merge(&self, from: &[u8], end: Option<&[u8]>) -> Result<Merge<D>> {
        let view = self.shared.view.read().clone();
        Ok(Merge(view.sources(from, end)?))
    }
}

impl<D: BlockPort + MemoryArea + 'static> Shared<D> {
    fn get(&self, key: &[u8], seq: u64) -> Result<Option<Vec<u8>>> {
        let levels = {
            let view = self.view.read();
            for memtable in std::iter::once(&view.active).chain(&view.sealed) {
                if let Some(value) = memtable.get(key, seq) {
                    return Ok(value);
                }
            }
            Arc::clone(&view.levels)
        };
        let hash = bloom::hash(key);
        let mut newest = None;
        for (number, level) in levels.iter().enumerate() {
            // Tables of level 0 overlap; those of the others are in order.
            let from = if number == 0 { 0 } else { level.partition_point(|table| table.last_key() < key) };
            let to = if number == 0 { level.len() } else { level.len().min(from + 1) };
            for table in &level[from..to] {
                let found = table.get(key, hash, seq)?;
                let seq_of = |entry: &Option<Entry>| entry.as_ref().map(|entry| entry.seq);
                if seq_of(&found) > seq_of(&newest) {
                    newest = found;
                }
            }
            // What is deeper is older.
            if newest.is_some() {
                break;
            }
        }
        Ok(newest.and_then(|entry| entry.value))
    }
}

impl<D: BlockPort> View<D> {
    fn sources(&self, from: &[u8], end: Option<&[u8]>) -> Result<Vec<Source<D>>> {
        let memtables = std::iter::once(&self.active).chain(&self.sealed);
        let mut sources: Vec<_> =
            memtables.map(|memtable| Source::memory(Arc::clone(memtable), from)).collect();
        for table in &self.levels[0] {
            sources.push(Source::tables(std::slice::from_ref(table), from, end)?);
        }
        for level in &self.levels[1..] {
            sources.push(Source::tables(level, from, end)?);
        }
        Ok(sources)
    }
}
