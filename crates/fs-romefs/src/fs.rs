//! [`RomeFs`]: the mounted file system, and its operations as `vfs` names them.

use std::ops::Range;
use std::sync::Arc;

use amphi_device::{BlockPort, MemoryArea, PAGE_BYTES};
use amphi_names::with_room;
use amphi_rt::task::{self, JoinHandle};
use amphi_vfs::{Allocate, Cred, FileSystem, Ino, NAME_BYTES_MAX, Promise, Result, Seek, StatFs, WriteMode};
use amphi_volume::Discard;

use crate::core::Core;
use crate::format::Map;
use crate::journal::Recovered;
use crate::mount::{self, Info, MountError};
use crate::options::{FormatOptions, MountOptions};
use crate::planted::{self, Bug};
use crate::stats::Stats;
use crate::{allocate, background, lazy, read, write};

/// A mounted RomeFS.
///
/// Dropping it without [`unmount`](Self::unmount) is a crash of the file system: what was acknowledged is
/// there after the next mount.
pub struct RomeFs<D: BlockPort + MemoryArea + 'static> {
    core: Arc<Core<D>>,
    recovered: Recovered,
    background: Option<JoinHandle<()>>,
}

impl<D: BlockPort + MemoryArea + 'static> RomeFs<D> {
    /// Makes an empty file system on `device`, over whatever was there.
    ///
    /// # Errors
    /// [`MountError::Unsuitable`], [`MountError::Device`].
    pub fn format(device: &Arc<D>, options: &FormatOptions) -> std::result::Result<(), MountError> {
        mount::format(device, options)
    }

    /// Mounts the file system on `device`, recovering it if need be.
    ///
    /// # Errors
    /// As [`MountError`] says.
    pub fn mount(device: &Arc<D>, options: MountOptions) -> std::result::Result<Self, MountError> {
        let runs = options.checkpoint_interval_ns > 0 && !options.read_only;
        let (core, recovered) = mount::open(device, options)?;
        let background = runs.then(|| {
            let core = Arc::clone(&core);
            task::spawn("romefs-background", move || background::run(&core))
        });
        Ok(Self { core, recovered, background })
    }

    /// What recovery found when this was mounted.
    pub const fn recovered(&self) -> &Recovered {
        &self.recovered
    }

    /// The device under the file system.
    pub fn device(&self) -> &Arc<D> {
        &self.core.device
    }

    /// What the superblock says, as of this mount.
    pub fn info(&self) -> Info {
        Info::of(&self.core.superblock, &self.core.state, &self.core.layout)
    }

    /// Why the file system turned read-only, if an error made it.
    pub fn failure(&self) -> Option<String> {
        self.core.names.health.failure()
    }

    /// What happened since it was mounted.
    pub fn stats(&self) -> Stats {
        self.core.counters.stats(self.core.journal.checkpoints())
    }

    /// Deletes files without names, checkpoints, and marks the file system clean. Nobody uses it any more.
    ///
    /// # Errors
    /// [`Error::Io`](amphi_vfs::Error::Io); the file system is then as after a crash.
    pub fn unmount(mut self) -> Result<()> {
        self.stop();
        mount::close(&self.core)
    }

    fn stop(&mut self) {
        if let Some(background) = self.background.take() {
            self.core.background.stop();
            background.join();
        }
    }
}

impl<D: BlockPort + MemoryArea + 'static> Drop for RomeFs<D> {
    fn drop(&mut self) {
        self.stop();
    }
}

impl<D: BlockPort + MemoryArea + 'static> FileSystem for RomeFs<D> {
    fn promise(&self) -> Promise {
        // What is buffered is written back in pieces, of several writes or a part of one.
        let at_once = !self.core.is_lazy();
        Promise { metadata_durable_on_return: true, atomic_writes: at_once, data_durable_on_return: at_once }
    }

    amphi_names::forward_names!(self => &*self.core);

    fn read(&self, ino: Ino, offset: u64, into: &mut [u8], direct: bool) -> Result<usize> {
        read::read(&self.core, &*self.core.inode(ino)?, offset, into, direct)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], mode: WriteMode, cred: &Cred) -> Result<usize> {
        let inode = &*self.core.inode(ino)?;
        amphi_names::regular(inode.file_type)?;
        self.core.names.health.writable()?;
        if self.core.is_lazy() && !data.is_empty() {
            let at_once = mode.direct || mode.sync_data;
            if !at_once && lazy::write(&self.core, inode, offset, data, mode.append, cred)? {
                return Ok(data.len());
            }
            lazy::flush(&self.core, inode)?;
        }
        loop {
            let at_once = || write::write(&self.core, inode, offset, data, mode, cred);
            if let Some(written) = with_room(&*self.core, at_once)? {
                return Ok(written);
            }
            lazy::flush(&self.core, inode)?;
        }
    }

    fn fsync(&self, ino: Ino, _data_only: bool) -> Result<()> {
        let inode = self.core.inode(ino)?;
        if planted::has(Bug::BufferNotFlushed) { Ok(()) } else { lazy::flush(&self.core, &inode) }
    }

    fn sync(&self) -> Result<()> {
        lazy::flush_all(&self.core)
    }

    fn statfs(&self) -> Result<StatFs> {
        let core = &self.core;
        let (blocks, inodes) = (core.pool(Map::Blocks), core.pool(Map::Inodes));
        Ok(StatFs {
            block_bytes: core.block_bytes() as u32,
            blocks: blocks.bits(),
            blocks_free: blocks.free(),
            blocks_available: blocks.free(),
            inodes: inodes.bits() - 1,
            inodes_free: inodes.free(),
            name_bytes_max: NAME_BYTES_MAX as u32,
        })
    }

    fn discard_free(&self, range: Range<u64>, shortest: u64) -> Result<u64> {
        let core = &self.core;
        core.names.health.writable()?;
        let (pool, pages) = (core.pool(Map::Blocks), core.block_bytes() / PAGE_BYTES as u64);
        let mut discard = Discard::new(&*core.device, range, shortest, pool.bits() * pages)?;
        pool.each_free(|run| discard.free_run(run.first * pages..(run.first + run.count) * pages))?;
        Ok(discard.bytes())
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        let inode = &*self.core.inode(ino)?;
        lazy::flush(&self.core, inode)?;
        allocate::seek(&self.core, inode, offset, what == Seek::Data)
    }

    fn allocate(&self, ino: Ino, offset: u64, length: u64, what: Allocate, cred: &Cred) -> Result<()> {
        let inode = &*self.core.inode(ino)?;
        lazy::flush(&self.core, inode)?;
        with_room(&*self.core, || allocate::allocate(&self.core, inode, offset, length, what, cred))
    }
}
