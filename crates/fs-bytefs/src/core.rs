//! What all parts of a mounted ByteFS share: the device, the bitmaps, the caches, and the state of health.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

use amphi_device::{BlockDurability, BlockPort, DurabilityContract, WriteLog};
use amphi_rt::sync::Mutex;
use amphi_vfs::{AccessTimes, Error, Ino, Result};
use smallvec::SmallVec;

use crate::bitmap::Bitmap;
use crate::extent::Limits;
use crate::format::{Layout, SuperState, Superblock};
use crate::icache::InodeCache;
use crate::inode::{Body, Inode, State};
use crate::inode_pages::InodePages;
use crate::mount::MountOptions;
use crate::orphans::Orphans;
use crate::page::PageBudget;
use crate::tx::{Tx, TxTable};
use crate::writeback::write_back;

const DIRTY_SHARDS: usize = 16;

/// Access times written by one transaction, a line each.
const ATIMES_PER_COMMIT: usize = 32;

/// The heart of a mounted file system.
///
/// Lock order: `rename` → a directory's inode → its descendants' inodes → (bitmap groups and orphan lines, inside a commit). Two directories are
/// locked ancestor first; inodes not related are locked by ascending number.
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
    /// Which pages files may use.
    pub limits: Limits,
    /// How this mount behaves.
    pub options: MountOptions,
    /// Block bitmap.
    pub blocks: Bitmap,
    /// Inode bitmap.
    pub inodes: Bitmap,
    /// Orphan table.
    pub orphans: Orphans,
    /// Transaction numbers.
    pub txs: TxTable,
    /// Pages of the inode table.
    pub inode_pages: InodePages,
    /// Inodes.
    pub icache: InodeCache,
    /// Count of cached file pages.
    pub pages: PageBudget,
    /// Serialises renames between directories, so that ancestry stands still.
    pub rename: Mutex<()>,
    dirty: [Mutex<Vec<u32>>; DIRTY_SHARDS],
    sweep: AtomicUsize,
    /// The time at the last background write-back: near enough to tell days apart, and cheaper than a clock.
    recent: AtomicI64,
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
    ) -> Self {
        Self {
            contract: device.contract(),
            device,
            superblock,
            state,
            layout,
            limits: Limits { data: u64::from(layout.data), pages: layout.pages },
            pages: PageBudget::new(options.page_cache_pages),
            options,
            blocks,
            inodes,
            orphans,
            txs: TxTable::default(),
            inode_pages: InodePages::default(),
            icache: InodeCache::default(),
            rename: Mutex::new(()),
            dirty: Default::default(),
            sweep: AtomicUsize::new(0),
            recent: AtomicI64::new(amphi_rt::time::wall_ns()),
            failed: AtomicBool::new(false),
            failure: Mutex::new(None),
        }
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
        }
        self.failed.store(true, Ordering::Release);
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

    /// Puts an inode on the list of those with writes to come.
    pub fn note_dirty(&self, inode: &Inode) {
        if !inode.listed.swap(true, Ordering::AcqRel) {
            self.dirty[inode.ino as usize % DIRTY_SHARDS].lock().push(inode.ino);
        }
    }

    /// Writes back every inode on the list.
    ///
    /// # Errors
    /// The first failure; the rest is tried all the same.
    pub fn write_back_all(&self) -> Result<()> {
        self.recent.store(self.now(), Ordering::Relaxed);
        let mut outcome = Ok(());
        for shard in &self.dirty {
            let listed = std::mem::take(&mut *shard.lock());
            for ino in listed {
                let Some(inode) = self.icache.get(ino) else { continue };
                // Taken off the list first: a write from now on lists it again.
                inode.listed.store(false, Ordering::Release);
                let mut state = inode.state.write();
                if !state.gone && matches!(state.body, Body::File(_)) {
                    let written = write_back(self, &inode, &mut state, false);
                    if written.is_err() {
                        self.note_dirty(&inode);
                    }
                    outcome = outcome.and(written);
                }
            }
        }
        outcome
    }

    /// Makes a writer with many dirty pages write its own back.
    ///
    /// # Errors
    /// As [`write_back`].
    pub fn throttle(&self, inode: &Inode, state: &mut State) -> Result<()> {
        let dirty = state.file().map_or(0, |file| file.dirty.len());
        if dirty > self.options.page_cache_pages / 4 || (dirty > 0 && self.pages.exceeded()) {
            write_back(self, inode, state, false)?;
            if self.pages.exceeded()
                && let Ok(file) = state.file_mut()
            {
                self.pages.remove(file.drop_clean());
            }
        }
        Ok(())
    }

    /// Brings the page cache back under its limit: drops clean pages, then writes back dirty ones and drops them. Skips inodes in use.
    pub fn shrink_caches(&self) {
        for write_dirty in [false, true] {
            if !self.pages.exceeded() {
                return;
            }
            self.icache.for_each(|inode| {
                if !self.pages.exceeded() {
                    return;
                }
                let Some(mut state) = inode.state.try_write() else { return };
                // A failed write-back keeps its pages and has already turned the file system read-only.
                if write_dirty && write_back(self, inode, &mut state, false).is_err() {
                    return;
                }
                if let Ok(file) = state.file_mut() {
                    self.pages.remove(file.drop_clean());
                }
            });
        }
    }

    /// Keeps the inode cache near its limit.
    fn shrink_inodes(&self) {
        if self.icache.len() <= self.options.inode_cache {
            return;
        }
        let start = self.sweep.fetch_add(4, Ordering::Relaxed);
        let mut lately_read = Vec::new();
        self.icache.evict(start, 4, |inode| {
            if inode.listed.load(Ordering::Acquire) {
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
                self.pages.remove(file.drop_clean());
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
