//! The store: what its tasks share.
//!
//! A write is prepared under the one mutex of its path, then logged, then inserted, beside all other writes
//! (`store/write.rs`). Three tasks work behind: one brings the memtable that is full into tables, one merges
//! tables, and one moves full halves of a small log to the block side (`store/background.rs`).

mod background;
mod compact;
mod group;
mod open;
mod read;
mod write;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Release;

use amphi_device::{BlockPort, Lpa, MemoryArea};
use amphi_rt::sync::atomic::{AtomicBool, AtomicU64};
use amphi_rt::sync::{Condvar, Mutex, RwLock};
use amphi_rt::task::JoinHandle;

use crate::format::{LEVELS, Superblock};
use crate::log::{Half, Log};
use crate::manifest::Manifest;
use crate::memtable::Memtable;
use crate::table::{Area, Table};
use crate::{Error, Result};

pub use read::{Range, Snapshot};

/// Where a store is put.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// First byte of its log in the memory area, a multiple of 4096.
    pub log_at: u64,
    /// Bytes of its log: 4 KB and two halves.
    pub log_bytes: u64,
    /// Its first page on the block side.
    pub first: Lpa,
    /// Its pages there.
    pub pages: u64,
    /// How many of these hold full halves of a log that is smaller than the memtable; 0 for a log that is
    /// larger.
    pub backing_pages: u64,
}

/// What may differ each time a store is opened.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes of keys and values after which a memtable is brought into tables.
    pub memtable_bytes: usize,
    /// Bytes after which a table ends.
    pub table_bytes: usize,
    /// Tables of level 0 that are merged into level 1.
    pub level0_tables: usize,
    /// Bytes of level 1; each further one has ten times as many.
    pub level1_bytes: u64,
    /// Bytes of tables' blocks that host memory keeps.
    pub block_cache_bytes: u64,
    /// Tasks that share what loads or zeros many lines of the log: recovery, and making a half ready for use
    /// again.
    pub log_tasks: usize,
    /// Whether one task writes for all that wait, one group after the other, as the stores do that the
    /// parallel path is held against.
    pub grouped: bool,
    /// How many such groups may be on their way to the log at once: more than one as a store does that has
    /// several tasks for its log (SpanDB, AugeFS §VII-F).
    pub groups: usize,
    /// Whether tables are merged when a level has too many. A store that is only read leaves them.
    pub merges: bool,
}

/// Memtables that level 1 holds.
const LEVEL1_MEMTABLES: u64 = 4;

impl Options {
    /// With a memtable of so many bytes, and level 1 in proportion: a store in small is as deep as one of
    /// full size with as many more keys.
    #[must_use]
    pub const fn with_memtable(self, bytes: u64) -> Self {
        Self { memtable_bytes: bytes as usize, level1_bytes: LEVEL1_MEMTABLES * bytes, ..self }
    }
}

impl Default for Options {
    /// RocksDB's memtable of 64 MB and cache of 32 MB, tables of 2 MB. Eight tasks at the log: the processor
    /// of one of them mostly waits for the link.
    fn default() -> Self {
        Self {
            memtable_bytes: 64 << 20,
            table_bytes: 2 << 20,
            level0_tables: 4,
            level1_bytes: LEVEL1_MEMTABLES * (64 << 20),
            block_cache_bytes: 32 << 20,
            log_tasks: 8,
            grouped: false,
            groups: 1,
            merges: true,
        }
    }
}

/// A key-value store. Dropping it waits for the tasks behind it; what was acknowledged is durable without
/// that.
#[derive(Debug)]
pub struct Store<D: BlockPort + MemoryArea + 'static> {
    shared: Arc<Shared<D>>,
    tasks: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared<D: BlockPort> {
    device: Arc<D>,
    first: Lpa,
    superblock: Superblock,
    options: Options,
    log: Log<D>,
    area: Arc<Area<D>>,
    writing: Mutex<Writing>,
    view: RwLock<View<D>>,
    manifest: Mutex<Manifest>,
    work: Mutex<Work>,
    /// Something in `work` has changed.
    changed: Condvar,
    /// Whether `work.failed` says why nothing more is written.
    broken: AtomicBool,
    groups: group::Groups,
    snapshots: Mutex<BTreeMap<u64, usize>>,
    next_number: AtomicU64,
}

/// What the mutex of the write path guards.
#[derive(Debug)]
struct Writing {
    next_seq: u64,
    memtable: Arc<Memtable>,
    /// Bytes of its keys and values.
    memtable_bytes: usize,
    half: Half,
    /// Bytes of the half that prepared writes take.
    claimed: u64,
}

/// What readers see.
#[derive(Debug)]
struct View<D: BlockPort> {
    active: Arc<Memtable>,
    sealed: Option<Arc<Memtable>>,
    levels: Arc<Levels<D>>,
}

impl<D: BlockPort> Clone for View<D> {
    fn clone(&self) -> Self {
        let (active, sealed) = (Arc::clone(&self.active), self.sealed.clone());
        Self { active, sealed, levels: Arc::clone(&self.levels) }
    }
}

/// Tables by level. Those of level 0 overlap; those of each other level do not and are in order.
type Levels<D> = [Vec<Arc<Table<D>>>; LEVELS];

/// What a half of the log is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// Zeros.
    Free,
    /// Takes entries.
    Active,
    /// Full; its bytes go to this file of the backing.
    Moving { file: usize, last: u64 },
    /// Full; cleared when its memtable is in tables.
    Kept,
}

/// What the tasks behind have to do.
#[derive(Debug)]
struct Work {
    halves: [Use; 2],
    /// The last sequence number in each file of the backing that is needed.
    backing: Vec<Option<u64>>,
    /// A memtable to bring into tables, and the last sequence number in it.
    full: Option<(Arc<Memtable>, u64)>,
    /// Whether tables have come since compaction looked last.
    tables_came: bool,
    compacting: bool,
    /// Whether somebody waits for all tables to be merged.
    merge_all: bool,
    ending: bool,
    failed: Option<Error>,
}

impl<D: BlockPort + MemoryArea + 'static> Shared<D> {
    /// The first failure of a task behind, which ends all writing.
    fn check(work: &Work) -> Result<()> {
        work.failed.clone().map_or(Ok(()), Err)
    }

    fn fail(&self, error: Error) {
        let mut work = self.work.lock();
        work.failed.get_or_insert(error);
        self.broken.store(true, Release);
        self.changed.notify_all();
    }
}

impl<D: BlockPort + MemoryArea + 'static> Drop for Store<D> {
    fn drop(&mut self) {
        {
            let mut work = self.shared.work.lock();
            work.ending = true;
            self.shared.changed.notify_all();
        }
        for task in self.tasks.drain(..) {
            task.join();
        }
    }
}
