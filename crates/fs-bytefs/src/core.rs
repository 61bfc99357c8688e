//! What all parts of a mounted ByteFS share: the device, the bitmaps, the caches, and the state of health.

use std::sync::Arc;

use amphi_device::{BlockDurability, BlockPort, DurabilityContract, WriteLog};
use amphi_names::Names;
use amphi_rt::sync::Padded;
use amphi_vfs::{Error, Ino, Result};
use amphi_volume::io_error;

use crate::commit::journal::Journal;
use crate::commit::txtable::TxTable;
use crate::data::page::PageBudget;
use crate::data::pressure::DirtyFiles;
use crate::format::{Layout, SuperState, Superblock};
use crate::index::inode::Inode;
use crate::index::inode_pages::InodePages;
use crate::options::{DataMode, MountOptions, Variant};
use crate::planted::{self, Bug};
use crate::space::bitmap::Bitmap;
use crate::space::orphans::Orphans;

/// The heart of a mounted file system.
///
/// Lock order: what `amphi_names` locks → (bitmap groups and orphan lines, inside a commit).
pub struct Core<D: BlockPort + WriteLog> {
    /// The device.
    pub device: Arc<D>,
    /// What it promises.
    pub contract: DurabilityContract,
    /// The superblock's unchanging part.
    pub superblock: Superblock,
    /// The superblock's changing part as of this mount.
    pub state: SuperState,
    /// Where everything is.
    pub layout: Layout,
    /// How this mount behaves.
    pub options: MountOptions,
    /// Block bitmap.
    pub blocks: Bitmap,
    /// Inode bitmap.
    pub inodes: Bitmap,
    /// Orphan table.
    pub orphans: Orphans,
    /// The data journal.
    pub journal: Journal,
    /// Transaction numbers.
    pub txs: TxTable,
    /// Pages of the inode table.
    pub inode_pages: InodePages,
    /// What operations on names need: inodes, the clock, the state of health.
    pub names: Names<Self>,
    /// Count of cached file pages.
    pub pages: Padded<PageBudget>,
    /// Files with writes to come.
    pub dirty: DirtyFiles,
}

impl<D: BlockPort + WriteLog> Core<D> {
    /// Puts the parts together.
    #[expect(clippy::too_many_arguments, reason = "called once, by mount, which has just read each part")]
    pub fn new(
        device: Arc<D>,
        superblock: Superblock,
        state: SuperState,
        layout: Layout,
        options: MountOptions,
        blocks: Bitmap,
        inodes: Bitmap,
        orphans: Orphans,
        journal: Journal,
    ) -> Self {
        let of_names = amphi_names::Options {
            read_only: options.read_only,
            access_times: options.access_times,
            cached_inodes: options.inode_cache,
            tick_ns: 1,
        };
        Self {
            contract: device.contract(),
            device,
            superblock,
            state,
            layout,
            pages: Padded(PageBudget::new(options.page_cache_pages, options.dirty_limit())),
            options,
            blocks,
            inodes,
            orphans,
            journal,
            txs: TxTable::default(),
            inode_pages: InodePages::default(),
            names: Names::new(of_names),
            dirty: DirtyFiles::default(),
        }
    }

    /// Whether modified pages keep a duplicate, to choose between bytes and block by (BY-14, BY-18).
    pub fn keeps_duplicates(&self) -> bool {
        match self.options.variant {
            Variant::Full => !planted::has(Bug::DuplicatesForgotten),
            Variant::Log | Variant::Dual => planted::has(Bug::LogVariantKeepsDuplicates),
        }
    }

    /// Whether file data counts all at once with its transaction.
    pub fn journals_data(&self) -> bool {
        self.options.data == DataMode::Journal
    }

    /// The inode, from the cache or the device.
    ///
    /// # Errors
    /// [`Error::Stale`] if no inode has the number; [`Error::Corrupt`], [`Error::Io`].
    #[inline]
    pub fn inode(&self, ino: Ino) -> Result<Arc<Inode<D>>> {
        amphi_names::inode(self, ino)
    }

    /// Fails once the file system has turned read-only, or if it was mounted so.
    ///
    /// # Errors
    /// [`Error::ReadOnly`].
    #[inline]
    pub fn writable(&self) -> Result<()> {
        self.names.health.writable()
    }

    /// Turns the file system read-only: host and device no longer agree.
    pub fn fail(&self, error: &Error) {
        self.names.health.fail(error);
        self.journal.wake_all();
    }

    /// A device error that left host and device apart, as the file system's: turns it read-only.
    pub fn broken(&self, error: amphi_device::Error) -> Error {
        let error = io_error(error);
        self.fail(&error);
        error
    }

    /// Makes completed block writes durable, where the device does not do so by itself.
    ///
    /// # Errors
    /// The device's.
    pub fn settle_blocks(&self) -> amphi_device::Result<()> {
        match self.contract.block_durability {
            BlockDurability::Completion => Ok(()),
            BlockDurability::Flush if planted::has(Bug::BlocksNotFlushed) => Ok(()),
            BlockDurability::Flush => self.device.flush(),
        }
    }
}
