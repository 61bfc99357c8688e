//! What all parts of a mounted ByteFS share: the device, the bitmaps, the caches, and the state of health.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

use amphi_device::{BlockDurability, BlockPort, DurabilityContract, WriteLog};
use amphi_rt::sync::{Mutex, Padded};
use amphi_vfs::{AccessTimes, Error, Ino, Result};
use smallvec::SmallVec;

use crate::bitmap::Bitmap;
use crate::format::{Layout, SuperState, Superblock};
use crate::icache::InodeCache;
use crate::inode::{Inode, State};
use crate::inode_pages::InodePages;
use crate::journal::Journal;
use crate::options::{DataMode, MountOptions, Variant};
use crate::orphans::Orphans;
use crate::page::PageBudget;
use crate::planted::{self, Bug};
use crate::pressure::DirtyFiles;
use crate::tx::Tx;
use crate::txtable::TxTable;

/// Access times written by one transaction, a line each.
const ATIMES_PER_COMMIT: usize = 32;

/// Inodes read between two looks at how many are cached.
const LOADS_PER_LOOK: usize = 16;

/// The heart of a mounted file system.
///
/// Lock order: `rename` → a directory's inode → its descendants' inodes → (bitmap groups and orphan lines, inside a commit). Two directories are
/// locked in the order of their paths: an ancestor first, else by the number of where the paths part; what is in them by ascending number,
/// directories before others.
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
    /// Inodes.
    pub icache: InodeCache,
    /// Count of cached file pages.
    pub pages: Padded<PageBudget>,
    /// Serialises renames between directories, so that ancestry stands still.
    pub rename: Mutex<()>,
    /// Files with writes to come.
    pub dirty: DirtyFiles,
    sweep: AtomicUsize,
    /// Inodes read from the device.
    loads: AtomicUsize,
    /// The time at the last background write-back: near enough to tell days apart, and cheaper than a clock.
    pub recent: AtomicI64,
    failed: AtomicBool,
    failure: Mutex<Option<String>>,
}

/// A device error as the file system's.
#[expect(clippy::needless_pass_by_value, reason = "what `map_err` calls")]
pub fn io_error(error: amphi_device::Error) -> Error {
    Error::Io(error.to_string())
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
            icache: InodeCache::default(),
            rename: Mutex::new(()),
            dirty: DirtyFiles::default(),
            sweep: AtomicUsize::new(0),
            loads: AtomicUsize::new(0),
            recent: AtomicI64::new(amphi_rt::time::wall_ns()),
            failed: AtomicBool::new(false),
            failure: Mutex::new(None),
        }
    }

    /// Whether modified pages keep a duplicate, to choose between bytes and block by (BY-14, BY-18).
    pub fn keeps_duplicates(&self) -> bool {
        self.options.variant == Variant::Full
    }

    /// Whether file data counts all at once with its transaction.
    pub fn journals_data(&self) -> bool {
        self.options.data == DataMode::Journal
    }

    /// The current time for time stamps, ns since 1970.
    pub fn now(&self) -> i64 {
        amphi_rt::time::wall_ns()
    }

    /// The inode, from the cache or the device.
    ///
    /// # Errors
    /// [`Error::Stale`] if no inode has the number; [`Error::Corrupt`], [`Error::Io`].
    pub fn inode(&self, ino: Ino) -> Result<Arc<Inode>> {
        let number = u32::try_from(ino.0).ok().filter(|n| *n != 0 && *n < self.layout.inodes);
        let number = number.ok_or(Error::Stale(ino))?;
        loop {
            if let Some(inode) = self.icache.get(number) {
                return Ok(inode);
            }
            if !self.inodes.is_used(u64::from(number)) {
                return Err(Error::Stale(ino));
            }
            let before = self.icache.departures(number);
            let bytes = self.inode_pages.read(&*self.device, &self.layout, number)?;
            let inode = Inode::load(self, number, &bytes)?;
            if let Some(inode) = self.icache.insert_loaded(inode, before) {
                self.shrink_inodes();
                return Ok(inode);
            }
        }
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

    /// Turns the file system read-only: host and device no longer agree.
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

    /// Whether reading what has this state moves its access time.
    pub fn read_moves_atime(&self, state: &State) -> bool {
        let now = match self.options.access_times {
            AccessTimes::Strict => self.now(),
            _ => self.recent.load(Ordering::Relaxed),
        };
        self.options.access_times.moves(state.atime, state.mtime, state.ctime, now) && self.writable().is_ok()
    }

    /// Moves the access time, in DRAM: it travels with the inode's next change, or when the inode leaves the cache.
    pub fn move_atime(&self, state: &mut State) {
        state.atime = self.now();
        state.atime_dirty = true;
    }

    /// As [`move_atime`](Self::move_atime), of an inode that is not locked. One that others use just now has been read and is read again.
    pub fn note_read(&self, inode: &Inode) {
        let mut state = inode.state.write();
        if !state.gone && self.read_moves_atime(&state) {
            self.move_atime(&mut state);
        }
    }

    /// Brings access times that are in DRAM only to the device.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write_atimes(&self, inodes: &[Arc<Inode>]) -> Result<()> {
        for some in inodes.chunks(ATIMES_PER_COMMIT) {
            // Inodes in use keep theirs until the next time.
            let mut locked: SmallVec<[_; ATIMES_PER_COMMIT]> =
                some.iter().filter_map(|inode| Some((inode, inode.state.try_write()?))).collect();
            locked.retain(|(_, state)| state.atime_dirty && !state.gone);
            let mut tx = Tx::new(self, 0)?;
            for (inode, state) in &mut locked {
                inode.write_changed(self, state, &mut tx);
            }
            tx.commit()?;
        }
        Ok(())
    }

    /// Keeps the inode cache near its limit.
    fn shrink_inodes(&self) {
        let loaded = self.loads.fetch_add(1, Ordering::Relaxed);
        if !loaded.is_multiple_of(LOADS_PER_LOOK) || self.icache.len() <= self.options.inode_cache {
            return;
        }
        let start = self.sweep.fetch_add(4, Ordering::Relaxed);
        let mut lately_read = Vec::new();
        self.icache.evict(start, 4, |inode| {
            if inode.listed_ns.load(Ordering::Acquire) != 0 {
                return false;
            }
            let Some(mut state) = inode.state.try_write() else { return false };
            if state.orphan_slot.is_some() || state.attributes_dirty {
                return false;
            }
            if let Ok(file) = state.file_mut() {
                if !file.dirty.is_empty() {
                    return false;
                }
                file.drop_clean(&self.pages, usize::MAX, true);
            }
            if state.atime_dirty {
                lately_read.push(inode.ino);
            }
            !state.atime_dirty
        });
        // They leave the next time round; if the device fails, that is noticed by whoever changes something.
        let lately_read: Vec<_> = lately_read.into_iter().filter_map(|ino| self.icache.get(ino)).collect();
        let _reported_by_the_next_operation = self.write_atimes(&lately_read);
    }
}
