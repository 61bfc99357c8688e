//! What all parts of a mounted ByteFS below names share: the device, what is taken of it, how changes count,
//! and whether it may be changed.

use std::sync::Arc;

use amphi_device::{BlockDurability, BlockPort, DurabilityContract, WriteLog};
use amphi_names::Health;
use amphi_page_cache::Budget;
use amphi_rt::sync::Padded;
use amphi_vfs::{Error, Result};
use amphi_volume::io_error;

use crate::commit::journal::Journal;
use crate::commit::pending::Groups;
use crate::commit::txtable::TxTable;
use crate::format::{Layout, SuperState, Superblock};
use crate::index::inode_pages::InodePages;
use crate::options::{DataMode, MountOptions, Variant};
use crate::planted::{self, Bug};
use crate::space::bitmap::Bitmap;
use crate::space::orphans::Orphans;

/// Most pages written by one command: 1 MB.
pub const WRITE_RUN_MAX: usize = 256;

/// A mounted ByteFS without its names.
pub struct Base<D> {
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
    /// Transactions that are to count together.
    pub groups: Groups,
    /// Pages of the inode table.
    pub inode_pages: InodePages,
    /// Count of cached file pages.
    pub pages: Padded<Budget>,
    /// Whether it may be changed.
    pub health: Arc<Health>,
}

impl<D: BlockPort + WriteLog> Base<D> {
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

    /// Fails once the file system has turned read-only, or if it was mounted so.
    ///
    /// # Errors
    /// [`Error::ReadOnly`].
    #[inline]
    pub fn writable(&self) -> Result<()> {
        self.health.writable()
    }

    /// Turns the file system read-only: host and device no longer agree.
    pub fn fail(&self, error: &Error) {
        self.health.fail(error);
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
