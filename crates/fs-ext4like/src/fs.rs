//! [`Ext4Like`]: the mounted file system, and its operations as `vfs` names them.

use std::ops::Range;
use std::sync::Arc;

use amphi_device::BlockPort;
use amphi_page_cache::CacheUse;
use amphi_rt::task::{self, JoinHandle};
use amphi_vfs::{Allocate, Cred, FileSystem, Ino, Promise, Result, Seek, StatFs, WriteMode};
use amphi_volume::Discard;

use crate::core::Core;
use crate::data::writeback::fsync;
use crate::data::{allocate, file};
use crate::format::BLOCK;
use crate::mount::{self, FormatOptions, MountError, about};
use crate::options::MountOptions;

/// A mounted ext4-like file system.
///
/// Dropping it without [`unmount`](Self::unmount) is a crash of the file system: what was durable is there
/// after the next mount.
pub struct Ext4Like<D: BlockPort + 'static> {
    core: Arc<Core<D>>,
    replayed: u32,
    background: Vec<JoinHandle<()>>,
}

impl<D: BlockPort + 'static> Ext4Like<D> {
    /// Makes an empty file system on `device`, over whatever was there.
    ///
    /// # Errors
    /// [`MountError::Unsuitable`], [`MountError::Device`].
    pub fn format(device: &D, options: &FormatOptions) -> std::result::Result<(), MountError> {
        mount::format(device, options)
    }

    /// Mounts the file system on `device`: replays its journal, and starts what runs in the background.
    ///
    /// # Errors
    /// As [`MountError`] says.
    pub fn mount(device: Arc<D>, options: MountOptions) -> std::result::Result<Self, MountError> {
        let in_background = options.commit_interval_ns > 0 && !options.read_only;
        let (core, replayed) = mount::open(device, options)?;
        let core = Arc::new(core);
        let mut background = Vec::new();
        if in_background {
            let journal = Arc::clone(&core);
            background.push(task::spawn("ext4like-journal", move || journal.commit_in_background()));
            let flusher = Arc::clone(&core);
            background.push(task::spawn("ext4like-write-back", move || flusher.write_back_in_background()));
        }
        Ok(Self { core, replayed, background })
    }

    /// Transactions that mounting replayed.
    pub const fn replayed(&self) -> u32 {
        self.replayed
    }

    pub(crate) const fn core(&self) -> &Arc<Core<D>> {
        &self.core
    }

    /// The device under the file system.
    pub fn device(&self) -> &Arc<D> {
        &self.core.device
    }

    /// What the superblock says, as of this mount.
    pub fn info(&self) -> amphi_volume::About {
        about(&self.core.superblock)
    }

    /// Why the file system turned read-only, if a device error made it.
    pub fn failure(&self) -> Option<String> {
        self.core.names.health.failure()
    }

    /// What the page cache takes.
    pub fn cache_use(&self) -> CacheUse {
        self.core.pages.usage()
    }

    /// Inodes in host memory.
    pub fn cached_inodes(&self) -> usize {
        self.core.names.cache.len()
    }

    /// Transactions committed since the file system was made.
    pub fn commits(&self) -> u32 {
        self.core.journal.last_committed()
    }

    /// Writes everything in place, deletes files without names, and marks the file system clean. Nobody uses
    /// it any more.
    ///
    /// # Errors
    /// [`Error::Io`](amphi_vfs::Error::Io); the file system is then as after a crash.
    pub fn unmount(mut self) -> Result<()> {
        self.stop();
        if self.core.options.read_only {
            return Ok(());
        }
        self.core.sound()?;
        mount::close(&self.core)
    }

    fn stop(&mut self) {
        if !self.background.is_empty() {
            self.core.background.stop();
            for task in self.background.drain(..) {
                task.join();
            }
        }
    }
}

impl<D: BlockPort + 'static> Drop for Ext4Like<D> {
    fn drop(&mut self) {
        self.stop();
    }
}

impl<D: BlockPort + 'static> FileSystem for Ext4Like<D> {
    amphi_names::forward_names!(self => &*self.core);

    fn promise(&self) -> Promise {
        Promise { metadata_durable_on_return: false, atomic_writes: false, data_durable_on_return: false }
    }

    fn read(&self, ino: Ino, offset: u64, into: &mut [u8], direct: bool) -> Result<usize> {
        file::read(&self.core, ino, offset, into, direct)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], mode: WriteMode, cred: &Cred) -> Result<usize> {
        file::write(&self.core, ino, offset, data, mode, cred)
    }

    fn fsync(&self, ino: Ino, data_only: bool) -> Result<()> {
        fsync(&self.core, &self.core.inode(ino)?, data_only)
    }

    fn sync(&self) -> Result<()> {
        self.core.sync_all()
    }

    fn statfs(&self) -> Result<StatFs> {
        let core = &self.core;
        let (blocks_free, blocks_available, inodes_free) = core.groups.free();
        Ok(StatFs {
            block_bytes: BLOCK as u32,
            blocks: u64::from(core.layout.blocks - core.layout.data),
            blocks_free,
            blocks_available,
            inodes: u64::from(core.layout.inodes() - 1),
            inodes_free,
            name_bytes_max: amphi_vfs::NAME_BYTES_MAX as u32,
        })
    }

    fn discard_free(&self, range: Range<u64>, shortest: u64) -> Result<u64> {
        let core = &self.core;
        core.writable()?;
        let mut discard = Discard::new(&*core.device, range, shortest, u64::from(core.layout.blocks))?;
        core.groups.each_free(core, |run| discard.free_run(run))?;
        Ok(discard.bytes())
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        file::seek(&*self.core.inode(ino)?, offset, what)
    }

    fn allocate(&self, ino: Ino, offset: u64, length: u64, what: Allocate, cred: &Cred) -> Result<()> {
        allocate::allocate(&self.core, ino, offset, length, what, Some(cred))
    }
}
