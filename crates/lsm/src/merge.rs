//! Versions of keys in order, merged from memtables and tables.

use std::sync::Arc;

use amphi_device::BlockPort;

use crate::Result;
use crate::entry::Entry;
use crate::memtable::{At, Memtable};
use crate::table::{Cursor, Reading, Table};

/// Entries in order: by key, the newest first.
pub enum Source<D: BlockPort> {
    Memory {
        memtable: Arc<Memtable>,
        next: Option<At>,
    },
    /// Tables whose keys do not overlap, in order.
    Tables {
        behind: std::vec::IntoIter<Arc<Table<D>>>,
        cursor: Option<Cursor<D>>,
        reading: Reading,
    },
}

impl<D: BlockPort> Source<D> {
    /// What a memtable has from a key on.
    pub fn memory(memtable: Arc<Memtable>, from: &[u8]) -> Self {
        let next = memtable.seek(from);
        Self::Memory { memtable, next }
    }

    /// All that tables have, past the cache: a merge reads each of them once.
    pub fn whole_tables(tables: Vec<Arc<Table<D>>>) -> Result<Self> {
        Self::of(tables, &[], Reading::Once)
    }

    /// What tables have from a key up to `end`, or more.
    pub fn tables(tables: &[Arc<Table<D>>], from: &[u8], end: Option<&[u8]>) -> Result<Self> {
        let within = |table: &&Arc<Table<D>>| {
            table.last_key() >= from && end.is_none_or(|end| table.first_key() < end)
        };
        Self::of(tables.iter().filter(within).cloned().collect(), from, Reading::Cached)
    }

    fn of(tables: Vec<Arc<Table<D>>>, from: &[u8], reading: Reading) -> Result<Self> {
        let mut behind = tables.into_iter();
        let cursor = behind.next().map(|table| Cursor::new(table, from, reading)).transpose()?;
        Ok(Self::Tables { behind, cursor, reading })
    }

    fn peek(&self) -> Option<&Entry> {
        match self {
            Self::Memory { next, .. } => next.as_ref().map(|at| &at.entry),
            Self::Tables { cursor, .. } => cursor.as_ref().and_then(Cursor::peek),
        }
    }

    fn next(&mut self) -> Result<Option<Entry>> {
        match self {
            Self::Memory { memtable, next } => {
                let Some(at) = next.take() else { return Ok(None) };
                *next = memtable.behind(&at);
                Ok(Some(at.entry))
            }
            Self::Tables { behind, cursor, reading } => {
                let Some(at) = cursor else { return Ok(None) };
                let taken = at.next()?;
                if at.peek().is_none() {
                    *cursor = behind.next().map(|table| Cursor::new(table, &[], *reading)).transpose()?;
                }
                Ok(taken)
            }
        }
    }
}

/// Sources merged into one order.
pub struct Merge<D: BlockPort>(pub Vec<Source<D>>);

impl<D: BlockPort> Merge<D> {
    /// The next version. There are few sources: they are compared one by one.
    pub fn next(&mut self) -> Result<Option<Entry>> {
        let first = self
            .0
            .iter()
            .enumerate()
            .filter_map(|(number, source)| Some((number, source.peek()?)))
            .min_by(|(_, one), (_, other)| one.key.cmp(&other.key).then(other.seq.cmp(&one.seq)))
            .map(|(number, _)| number);
        match first {
            Some(first) => self.0[first].next(),
            None => Ok(None),
        }
    }
}
