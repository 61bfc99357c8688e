//! What all parts of a mounted AugeFS share.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use amphi_device::{BlockPort, BytePortExt, MemoryArea, Structure};
use amphi_names::Names;
use amphi_rt::sync::{Mutex, Padded};
use amphi_segments::files::FileCache;
use amphi_segments::{Domain, Ground, Segments, Space};
use amphi_vfs::{Ino, Result};
use amphi_volume::io_error;

use crate::dentries::Dentries;
use crate::format::{Layout, SuperState, Superblock};
use crate::meta::Meta;
use crate::options::MountOptions;
use crate::part::{Inode, Part};
use crate::planted::{self, Bug};
use crate::stats::Counters;

/// The heart of a mounted file system.
///
/// Lock order: what `amphi_names` locks → all checkpoints, collection → a domain's gate → a processor's write
/// version → what a domain knows → free segments, the metadata store.
pub struct Core<D: BlockPort + MemoryArea + 'static> {
    /// The device.
    pub device: Arc<D>,
    /// Where segments, NAT and summaries are on it.
    pub ground: Ground<D>,
    /// Where everything is.
    pub layout: Layout,
    /// Page 0.
    pub superblock: Superblock,
    /// How this mount behaves.
    pub options: MountOptions,
    /// MetaDB.
    pub meta: Meta<D>,
    /// What operations on names need.
    pub names: Names<Part>,
    /// Names that were found lately.
    pub dentries: Dentries,
    /// The domains.
    pub domains: Box<[Domain]>,
    /// Segments of no domain.
    pub segments: Segments,
    /// NAT blocks of no domain.
    pub nat_blocks: Mutex<BTreeSet<u32>>,
    /// Blocks in use.
    pub space: Space,
    /// By processor: how many times what it submitted has arrived (AU-9).
    pub write_versions: Box<[Padded<Mutex<u64>>]>,
    /// What is counted of files in memory.
    pub cache: FileCache,
    /// Inodes.
    pub inodes: AtomicU64,
    /// Most inodes.
    pub inodes_max: u64,
    /// The next inode's number, and the first that the metadata store does not know of.
    pub numbers: Mutex<(u64, u64)>,
    /// One checkpoint of all domains at a time.
    pub sync: Mutex<()>,
    /// One collection at a time.
    pub collection: Mutex<()>,
    /// What the memory area says of this mount.
    pub state: SuperState,
    /// What happened.
    pub counters: Counters,
}

impl<D: BlockPort + MemoryArea> Core<D> {
    /// The inode.
    ///
    /// # Errors
    /// As [`amphi_names::inode`].
    pub fn inode(&self, ino: Ino) -> Result<Arc<Inode>> {
        amphi_names::inode(self, ino)
    }

    /// What a processor submitted has arrived: nodes with an older write version can be believed.
    ///
    /// # Errors
    /// [`amphi_vfs::Error::Io`].
    pub fn raise_write_version(&self, processor: usize, version: &mut u64) -> Result<()> {
        *version += 1;
        if planted::has(Bug::WriteVersionStays) {
            return Ok(());
        }
        let at = self.layout.write_version(processor);
        self.device.persist(at, &version.to_le_bytes(), None, Structure::Journal).map_err(io_error)
    }

    /// Inodes that can still be made.
    pub fn inodes_free(&self) -> u64 {
        self.inodes_max.saturating_sub(self.inodes.load(Ordering::Acquire))
    }
}
