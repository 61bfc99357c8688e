//! What all parts of a mounted file system share: the device, the caches, the journal, the allocators, and
//! the state of health.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use amphi_device::BlockPort;
use amphi_names::{Names, Options};
use amphi_rt::sync::Mutex;
use amphi_vfs::{Error, Failure, Ino, Result};

use crate::data::page::PageBudget;
use crate::data::pressure::DirtyFiles;
use crate::format::{Layout, Superblock};
use crate::index::inode::Inode;
use crate::journal::Journal;
use crate::journal::buffers::{Buffers, Kind, SharedBlock};
use crate::options::{DataMode, MountOptions};
use crate::space::groups::Groups;
use crate::space::orphans::Orphans;

/// Inodes that are read at a time, at the most.
pub const LOADERS: usize = 16;

/// The heart of a mounted file system.
///
/// Lock order: that of names → a handle → (group, orphans, buffers). Whoever has a handle waits for no inode:
/// a commit waits for handles, and those who wait for a handle hold inodes.
pub struct Core<D: BlockPort> {
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
    /// Inodes in memory, the clock, and the state of health.
    pub names: Names<Self>,
    /// Who reads an inode, by its number: others that want it wait, as iget_locked() has it, and find its
    /// blocks cached.
    pub loading: [Mutex<()>; LOADERS],
    /// Count of cached file pages.
    pub pages: PageBudget,
    /// Files with writes to come.
    pub dirty: DirtyFiles<D>,
    /// Where the next search for clean pages begins.
    pub(crate) sweep: AtomicUsize,
}

impl<D: BlockPort> Core<D> {
    /// Puts the parts together.
    pub fn new(
        device: Arc<D>,
        superblock: Superblock,
        options: MountOptions,
        groups: Groups,
        journal: Journal,
    ) -> Self {
        let names = Names::new(Options {
            read_only: options.read_only,
            access_times: options.access_times,
            cached_inodes: options.inode_cache,
            tick_ns: options.tick_ns,
        });
        Self {
            device,
            superblock,
            layout: Layout::of(&superblock),
            buffers: Buffers::new(options.buffer_blocks),
            journal,
            groups,
            orphans: Orphans::default(),
            names,
            loading: Default::default(),
            pages: PageBudget::new(options.page_cache_pages, options.dirty_limit()),
            options,
            dirty: DirtyFiles::default(),
            sweep: AtomicUsize::new(0),
        }
    }

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

    /// The inode, from the cache or the device.
    ///
    /// # Errors
    /// [`Error::Stale`] if no inode has the number; [`Error::Corrupt`], [`Error::Io`].
    pub fn inode(&self, ino: Ino) -> Result<Arc<Inode<D>>> {
        amphi_names::inode(self, ino)
    }

    /// Fails once the file system has turned read-only, or if it was mounted so.
    ///
    /// # Errors
    /// [`Error::ReadOnly`].
    pub fn writable(&self) -> Result<()> {
        self.names.health.writable()
    }

    /// Turns the file system read-only and stops the journal: host and device no longer agree.
    pub fn fail(&self, error: &Error) {
        self.names.health.fail(error);
        self.journal.wake_all();
    }

    /// What a file system that has failed says to whoever wants its data durable.
    ///
    /// # Errors
    /// [`Error::Io`] with the first reason, once a change has failed half way.
    pub fn sound(&self) -> Result<()> {
        let health = &self.names.health;
        if health.has_failed() {
            return Err(Error::Io(Failure::Earlier(health.failure().unwrap_or_default())));
        }
        Ok(())
    }

    /// Writes every file that has been dirty since before `before_ns`.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write_back_files(&self, before_ns: u64) -> Result<()> {
        crate::data::writeback::write_back_many(self, &self.dirty.since_before(before_ns))
    }
}
