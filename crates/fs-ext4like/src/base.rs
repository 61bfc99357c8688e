//! What all parts of a mounted file system below names share: the device, metadata blocks, transactions, what
//! is free, and whether it may be changed.

use std::sync::Arc;

use amphi_device::BlockPort;
use amphi_names::Health;
use amphi_page_cache::{Budget, DirtyFiles};
use amphi_vfs::{Error, Result};

use crate::format::{Layout, Superblock};
use crate::journal::Journal;
use crate::journal::buffers::{Buffers, Kind, SharedBlock};
use crate::options::{DataMode, MountOptions};
use crate::space::groups::Groups;
use crate::space::list::Orphans;

/// A mounted file system without its names.
pub struct Base<D> {
    /// The device.
    pub device: Arc<D>,
    /// The superblock as mounted.
    pub superblock: Superblock,
    /// Where everything is.
    pub layout: Layout,
    /// How this mount behaves.
    pub options: MountOptions,
    /// Metadata blocks.
    pub buffers: Buffers,
    /// Transactions.
    pub journal: Journal,
    /// Free blocks and inodes.
    pub groups: Groups,
    /// Inodes without names that are still used.
    pub orphans: Orphans,
    /// Count of cached file pages.
    pub pages: Budget,
    /// Files with writes to come.
    pub dirty: DirtyFiles,
    /// Whether it may be changed.
    pub health: Arc<Health>,
}

impl<D: BlockPort> Base<D> {
    /// Whether file data go through the journal.
    pub fn journals_data(&self) -> bool {
        self.options.data == DataMode::Journal
    }

    /// A metadata block's contents.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Corrupt`].
    pub fn block(&self, lba: u64, kind: Kind) -> Result<SharedBlock> {
        let buffer = self.buffers.get(&*self.device, lba, kind)?;
        let state = buffer.lock(kind)?;
        Ok(Arc::clone(&state.data))
    }

    /// Fails once the file system has turned read-only, or if it was mounted so.
    ///
    /// # Errors
    /// [`Error::ReadOnly`].
    pub fn writable(&self) -> Result<()> {
        self.health.writable()
    }

    /// Turns the file system read-only and stops the journal: host and device no longer agree.
    pub fn fail(&self, error: &Error) {
        self.health.fail(error);
        self.journal.wake_all();
    }

    /// What a file system that has failed says to whoever wants its data durable.
    ///
    /// # Errors
    /// [`Error::Io`] with the first reason, once a change has failed half way.
    pub fn sound(&self) -> Result<()> {
        self.health.sound()
    }
}
