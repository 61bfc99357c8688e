//! The buffer cache: metadata blocks (and, with data journaling, file data on their way through the journal)
//! in host DRAM.
//!
//! A block is read once and checked for what it is used as. A handle changes it in place; the contents are
//! shared, not copied, with a transaction that is being written to the journal and with what still has to be
//! written in place, and are copied only when a later change would reach those. Blocks that nobody needs
//! leave the cache when it is full, those not used of late first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use amphi_device::{BlockPort, Lpa, Structure};
use amphi_rt::hash::HashMap;
use amphi_rt::sync::{Mutex, MutexGuard};
use amphi_vfs::{Error, Result};
use amphi_volume::io_error;

use crate::format::{self, BLOCK, is_sealed};

/// A block's contents.
pub type Block = [u8; BLOCK];

/// A block's contents in host DRAM, for several to hold.
pub type SharedBlock = amphi_page_cache::SharedFrame;

/// A block of zeros.
pub fn zeros() -> SharedBlock {
    Arc::new(Box::new([0; BLOCK]))
}

/// What a block is used as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The superblock.
    Superblock,
    /// Group descriptors.
    Descriptors,
    /// A group's block bitmap.
    BlockBitmap,
    /// A group's inode bitmap.
    InodeBitmap,
    /// A block of an inode table.
    Inodes,
    /// A directory's block: entries or index.
    Directory,
    /// A block of an extent tree.
    Extents,
    /// Extended attributes.
    Xattr,
    /// A long symlink's target, or file data in the journal.
    Data,
}

impl Kind {
    /// The structure that its transfers are accounted to.
    pub const fn structure(self) -> Structure {
        match self {
            Self::Superblock => Structure::Superblock,
            Self::Descriptors | Self::BlockBitmap | Self::InodeBitmap => Structure::Bitmap,
            Self::Inodes | Self::Xattr => Structure::Inode,
            Self::Directory => Structure::Dentry,
            Self::Extents => Structure::Pointer,
            Self::Data => Structure::Data,
        }
    }

    /// Whether its last four bytes are a checksum of the rest.
    const fn is_sealed(self) -> bool {
        matches!(self, Self::Directory | Self::Extents | Self::Xattr)
    }

    /// Puts checksums into a block that is about to be written to the journal. Those of inodes are kept with
    /// every change, those of bitmaps stand in the group descriptors.
    pub fn seal(self, lba: u64, block: &mut Block) {
        match self {
            Self::Superblock => format::Superblock::seal(block),
            kind if kind.is_sealed() => format::seal_block(lba, block),
            _ => {}
        }
    }
}

/// What a committed transaction left to be written in place.
#[derive(Clone)]
pub struct Committed {
    /// The contents as committed.
    pub data: SharedBlock,
    /// The transaction.
    pub tid: u32,
    /// When the block began to wait, ns.
    pub since_ns: u64,
}

/// What is known of a cached block.
pub struct BufferState {
    /// The newest contents.
    pub data: SharedBlock,
    /// What it is.
    pub kind: Kind,
    /// The transaction not yet committed that changed it last; 0: none.
    pub tid: u32,
    /// What is to be written in place.
    pub committed: Option<Committed>,
}

/// A cached block.
pub struct Buffer {
    /// Where it belongs.
    pub lba: u64,
    /// Its state.
    pub state: Mutex<BufferState>,
    used: AtomicBool,
}

impl Buffer {
    fn new(lba: u64, kind: Kind, data: SharedBlock) -> Self {
        let state = BufferState { data, kind, tid: 0, committed: None };
        Self { lba, state: Mutex::new(state), used: AtomicBool::new(true) }
    }

    /// Its state, if it is used as `kind`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if it is used as something else too.
    pub fn lock(&self, kind: Kind) -> Result<MutexGuard<'_, BufferState>> {
        let state = self.state.lock();
        if state.kind == kind {
            Ok(state)
        } else {
            Err(Error::corrupt("block", self.lba, format!("it is used as {:?} and as {kind:?}", state.kind)))
        }
    }
}

type Map = HashMap<u64, Arc<Buffer>>;

/// The cached blocks.
pub struct Buffers {
    map: Mutex<Map>,
    limit: usize,
    /// Insertions until the next look for blocks that can leave.
    until_sweep: AtomicUsize,
    /// How often blocks have left, by block number modulo [`DEPARTURES`].
    departures: [AtomicU64; DEPARTURES],
}

/// Counters of departures. A read of one block hardly ever meets the departure of another in its counter.
const DEPARTURES: usize = 256;

impl Buffers {
    /// An empty cache that keeps about `limit` blocks.
    pub fn new(limit: usize) -> Self {
        let departures = std::array::from_fn(|_| AtomicU64::new(0));
        Self { map: Mutex::default(), limit, until_sweep: AtomicUsize::new(0), departures }
    }

    fn departures(&self, lba: u64) -> &AtomicU64 {
        &self.departures[lba as usize % DEPARTURES]
    }

    /// The block, if it is cached.
    pub fn cached(&self, lba: u64) -> Option<Arc<Buffer>> {
        let buffer = self.map.lock().get(&lba).cloned()?;
        buffer.used.store(true, Ordering::Relaxed);
        Some(buffer)
    }

    /// The block, read from `device` if need be and then checked.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Corrupt`] if its checksum is wrong.
    pub fn get<D: BlockPort>(&self, device: &D, lba: u64, kind: Kind) -> Result<Arc<Buffer>> {
        loop {
            if let Some(buffer) = self.cached(lba) {
                return Ok(buffer);
            }
            let departures = self.departures(lba);
            let before = departures.load(Ordering::Acquire);
            let mut data = zeros();
            let bytes = Arc::make_mut(&mut data);
            device.read(Lpa(lba), &mut bytes[..], kind.structure()).map_err(io_error)?;
            if kind.is_sealed() && !is_sealed(lba, bytes) {
                return Err(Error::corrupt("block", lba, format!("its checksum as {kind:?} is wrong")));
            }
            // Another task may have read it meanwhile, and changed it; and it may have left again.
            let mut map = self.map.lock();
            if departures.load(Ordering::Acquire) == before || map.contains_key(&lba) {
                return Ok(self.insert(&mut map, lba, kind, data));
            }
        }
    }

    /// The block as zeros, without reading it: it was just allocated. Whatever was cached in its place is
    /// from another life.
    pub fn fresh(&self, lba: u64, kind: Kind) -> Arc<Buffer> {
        let data = zeros();
        let buffer = self.insert(&mut self.map.lock(), lba, kind, Arc::clone(&data));
        let mut state = buffer.state.lock();
        state.kind = kind;
        state.data = data;
        drop(state);
        buffer
    }

    fn insert(&self, map: &mut Map, lba: u64, kind: Kind, data: SharedBlock) -> Arc<Buffer> {
        let buffer = Arc::clone(map.entry(lba).or_insert_with(|| Arc::new(Buffer::new(lba, kind, data))));
        if map.len() > self.limit && self.until_sweep.fetch_sub(1, Ordering::Relaxed) == 0 {
            // Whoever holds a block keeps it here: a second copy would not see the first one's changes.
            map.retain(|lba, buffer| {
                let used = buffer.used.swap(false, Ordering::Relaxed) || Arc::strong_count(buffer) > 1;
                let stays = used || {
                    let state = buffer.state.lock();
                    state.tid != 0 || state.committed.is_some()
                };
                if !stays {
                    self.departures(*lba).fetch_add(1, Ordering::AcqRel);
                }
                stays
            });
            self.until_sweep.store(self.limit / 4, Ordering::Relaxed);
        }
        buffer
    }

    /// Drops a block whose place is free again.
    pub fn forget(&self, lba: u64) {
        let mut map = self.map.lock();
        map.remove(&lba);
        self.departures(lba).fetch_add(1, Ordering::AcqRel);
    }
}
