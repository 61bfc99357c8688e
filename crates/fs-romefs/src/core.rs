//! What all parts of a mounted RomeFS share.

use std::sync::Arc;

use amphi_device::{BlockPort, DurabilityContract, Lpa, MemoryArea, PAGE_BYTES};
use amphi_names::Names;
use amphi_page_cache::Background;
use amphi_vfs::{Ino, Result};

use crate::buffer::Lazy;
use crate::cache::BlockCache;
use crate::format::{Layout, Map, SuperState, Superblock};
use crate::io_threads::IoThreads;
use crate::journal::Journal;
use crate::memory::Memory;
use crate::meta::Meta;
use crate::options::MountOptions;
use crate::part::{Inode, Part};
use crate::pool::Pool;
use crate::stats::Counters;
use crate::victims::Victims;

/// The heart of a mounted file system.
///
/// Lock order: what `amphi_names` locks → ranges of a file, which are taken only if free while an inode is
/// locked → the journal's gate → a lane, a page of metadata, a part of a pool.
pub struct Core<D: BlockPort + MemoryArea + 'static> {
    /// The device.
    pub device: Arc<D>,
    /// What it promises.
    pub contract: DurabilityContract,
    /// The memory zone.
    pub memory: Arc<Memory<D>>,
    /// Where everything is.
    pub layout: Layout,
    /// The superblock's unchanging part.
    pub superblock: Superblock,
    /// The superblock's changing part as of this mount.
    pub state: SuperState,
    /// Whether the mount before this one ended with an unmount.
    pub was_clean: bool,
    /// How this mount behaves.
    pub options: MountOptions,
    /// Metadata in host memory.
    pub meta: Meta<D>,
    /// The journal.
    pub journal: Journal<D>,
    /// Data blocks, metadata pages, leaves, log pages and inodes, by [`Map`].
    pub pools: [Pool; 5],
    /// What operations on names need.
    pub names: Names<Part>,
    /// Pages of data blocks.
    pub cache: BlockCache,
    /// What is buffered of files.
    pub lazy: Lazy,
    /// Data blocks that have logs.
    pub victims: Victims,
    /// Threads of the block path, if the mount asked for some.
    pub io_threads: IoThreads,
    /// What wakes the background task.
    pub background: Background,
    /// What happened.
    pub counters: Counters,
}

impl<D: BlockPort + MemoryArea> Core<D> {
    /// The pool behind a bitmap that has one.
    pub fn pool(&self, map: Map) -> &Pool {
        &self.pools[map as usize]
    }

    /// Bytes of a data block.
    pub const fn block_bytes(&self) -> u64 {
        self.layout.plan.block_bytes
    }

    /// A data block in units of 512 bytes.
    pub const fn block_sectors(&self) -> u32 {
        (self.block_bytes() / 512) as u32
    }

    /// Where a byte of a data block is on the block side: its page.
    pub const fn lpa(&self, block: u32, byte: u64) -> Lpa {
        Lpa((block as u64 * self.block_bytes() + byte) / PAGE_BYTES as u64)
    }

    /// The inode.
    ///
    /// # Errors
    /// As [`amphi_names::inode`].
    pub fn inode(&self, ino: Ino) -> Result<Arc<Inode>> {
        amphi_names::inode(self, ino)
    }

    /// Whether so few log pages are free that logs should be written back (RO-8).
    pub fn logs_are_scarce(&self) -> bool {
        let pool = self.pool(Map::Logs);
        pool.free() * 100 < pool.bits() * self.options.write_back_below_percent
    }

    /// Whether so few are free that who wants one should write logs back itself: the background task does not
    /// keep up.
    pub fn logs_are_exhausted(&self) -> bool {
        let pool = self.pool(Map::Logs);
        pool.free() * 300 < pool.bits() * self.options.write_back_below_percent
    }

    /// Whether the background task has something to do.
    pub fn wants_background(&self) -> bool {
        let leaves = self.pool(Map::Leaves);
        // Empty leaves come back with a checkpoint (RO-5).
        self.logs_are_scarce() || self.journal.is_half_full() || leaves.free() * 16 < leaves.bits()
    }
}
