//! What all parts of a mounted file system share: the device, the caches, the journal, the allocators, and the state of health.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

use amphi_device::BlockPort;
use amphi_rt::sync::Mutex;
use amphi_vfs::{AccessTimes, Error, Ino, Result};

use crate::buffers::{Buffers, Kind, SharedBlock};
use crate::format::{Layout, Superblock};
use crate::groups::Groups;
use crate::icache::InodeCache;
use crate::inode::{Inode, State};
use crate::journal::Journal;
use crate::options::{DataMode, MountOptions};
use crate::orphans::Orphans;
use crate::page::PageBudget;
use crate::pressure::DirtyFiles;

/// The heart of a mounted file system.
///
/// Lock order: `rename` → a directory's inode → its descendants' inodes (unrelated directories in the order of their paths) → a handle → (group, orphans, buffers). Whoever has a handle waits for no inode:
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
    /// Inodes.
    pub icache: InodeCache,
    /// Count of cached file pages.
    pub pages: PageBudget,
    /// Files with writes to come.
    pub dirty: DirtyFiles,
    /// Serialises renames between directories, so that ancestry stands still.
    pub rename: Mutex<()>,
    pub(crate) sweep: AtomicUsize,
    failed: AtomicBool,
    failure: Mutex<Option<String>>,
    last_now: AtomicI64,
}

/// A device error as the file system's.
#[expect(clippy::needless_pass_by_value, reason = "what `map_err` calls")]
pub fn io_error(error: amphi_device::Error) -> Error {
    Error::Io(error.to_string())
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
        Self {
            device,
            superblock,
            layout: Layout::of(&superblock),
            buffers: Buffers::new(options.buffer_blocks),
            journal,
            groups,
            orphans: Orphans::default(),
            icache: InodeCache::default(),
            pages: PageBudget::new(options.page_cache_pages, options.dirty_limit()),
            options,
            dirty: DirtyFiles::default(),
            rename: Mutex::new(()),
            sweep: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            failure: Mutex::new(None),
            last_now: AtomicI64::new(i64::MIN),
        }
    }

    /// Whether file data go through the journal.
    pub fn journals_data(&self) -> bool {
        self.options.data == DataMode::Journal
    }

    /// The current time for time stamps, ns since 1970, in steps of a tick.
    pub fn now(&self) -> i64 {
        let now = amphi_rt::time::wall_ns();
        let now = now - now.rem_euclid(self.options.tick_ns.max(1));
        // The clock of the system may be set back; time stamps of one mount are not.
        self.last_now.fetch_max(now, Ordering::Relaxed).max(now)
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
    pub fn inode(&self, ino: Ino) -> Result<Arc<Inode>> {
        let number = u32::try_from(ino.0).ok().filter(|n| *n != 0 && *n < self.layout.inodes());
        let number = number.ok_or(Error::Stale(ino))?;
        let inode = self.icache.get_or_load(number, || {
            if !self.groups.inode_is_used(self, number)? {
                return Err(Error::Stale(ino));
            }
            Inode::load(self, number)
        })?;
        self.shrink_inodes();
        Ok(inode)
    }

    /// Fails once the file system has turned read-only, or if it was mounted so.
    ///
    /// # Errors
    /// [`Error::ReadOnly`].
    pub fn writable(&self) -> Result<()> {
        if self.options.read_only || self.failed.load(Ordering::Acquire) {
            Err(Error::ReadOnly)
        } else {
            Ok(())
        }
    }

    /// Why the file system turned read-only, if it did.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    /// Turns the file system read-only and stops the journal: host and device no longer agree.
    pub fn fail(&self, error: &Error) {
        let mut failure = self.failure.lock();
        if failure.is_none() {
            *failure = Some(error.to_string());
            tracing::error!(
                "{error}; the file system is read-only from now on: unmount it and run `amphi fsck`"
            );
        }
        self.failed.store(true, Ordering::Release);
        drop(failure);
        self.journal.wake_all();
    }

    /// Whether a change has failed half way, after which nothing more may be committed.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Whether reading what has this state moves its access time.
    pub fn read_moves_atime(&self, state: &State) -> bool {
        self.options.access_times != AccessTimes::Never
            && self.options.access_times.moves(state.atime, state.mtime, state.ctime, self.now())
            && self.writable().is_ok()
    }

    /// Moves an inode's access time, in a handle of its own, as ext4 does. Whoever reads does not fail by it.
    pub fn note_read(&self, inode: &Inode) {
        let mut state = inode.state.write();
        if state.gone || !self.read_moves_atime(&state) {
            return;
        }
        if let Ok(mut handle) = self.handle(1) {
            state.atime = self.now();
            if inode.write(&mut handle, &mut state, false).is_ok() {
                handle.finish();
            }
        }
    }

    /// Writes every file that has been dirty since before `before_ns`.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write_back_files(&self, before_ns: u64) -> Result<()> {
        crate::writeback::write_back_many(self, &self.dirty.since_before(before_ns))
    }
}
