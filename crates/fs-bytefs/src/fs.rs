//! [`ByteFs`]: the mounted file system, and its operations as `vfs` names them.

use std::ops::Range;
use std::sync::Arc;

use amphi_device::{BlockPort, RecoverReport, WriteLog};
use amphi_names::with_room;
use amphi_page_cache::CacheUse;
use amphi_rt::task::{self, JoinHandle};
use amphi_rt::time;
use amphi_vfs::{
    Allocate, Cred, Error, FileSystem, Ino, NAME_BYTES_MAX, Promise, Result, Seek, StatFs, WriteMode,
};
use amphi_volume::io_error;

use crate::core::Core;
use crate::data::writeback::write_back;
use crate::data::{allocate, direct, file};
use crate::format::PAGE;
use crate::index::inode::{Body, number};
use crate::mount::{self, FormatOptions, Info, MountError};
use crate::options::MountOptions;
use crate::planted::{self, Bug};
use crate::space::discard;

/// A mounted ByteFS.
///
/// Dropping it without [`unmount`](Self::unmount) is a crash of the file system: what was durable is there
/// after the next mount.
pub struct ByteFs<D: BlockPort + WriteLog + 'static> {
    core: Arc<Core<D>>,
    recovered: RecoverReport,
    /// The background task that writes dirty files back.
    flusher: Option<JoinHandle<()>>,
}

impl<D: BlockPort + WriteLog + 'static> ByteFs<D> {
    /// Makes an empty file system on `device`, over whatever was there.
    ///
    /// # Errors
    /// [`MountError::Unsuitable`], [`MountError::Device`].
    pub fn format(device: &D, options: &FormatOptions) -> std::result::Result<(), MountError> {
        mount::format(device, options)
    }

    /// The mount options that the file system on `device` asks for: the defaults but for what its superblock
    /// says. Options there that this version does not know are passed over, and fsck finds them.
    ///
    /// # Errors
    /// [`MountError::Format`], [`MountError::Device`].
    pub fn default_options(device: &D) -> std::result::Result<MountOptions, MountError> {
        mount::recognise(device)?;
        let wanted = match mount::probe(device) {
            // A change that was never committed lies over it.
            Err(MountError::Format(_)) => {
                device.recover()?;
                mount::probe(device)?.options
            }
            found => found?.options,
        };
        let mut options = MountOptions::default();
        for word in wanted.split(',') {
            // An error leaves the option as it is.
            let _known = options.set_all(word);
        }
        Ok(options)
    }

    /// Mounts the file system on `device`: `RECOVER()`s it, which is what makes a crashed one whole, and
    /// starts background write-back.
    ///
    /// # Errors
    /// As [`MountError`] says.
    pub fn mount(device: Arc<D>, options: MountOptions) -> std::result::Result<Self, MountError> {
        let interval_ns = options.write_back_interval_ns;
        let read_only = options.read_only;
        let (core, recovered) = mount::open(device, options)?;
        let core = Arc::new(core);
        let flusher = (interval_ns > 0 && !read_only).then(|| {
            let core = Arc::clone(&core);
            task::spawn("bytefs-write-back", move || {
                while let Some(called) = core.background.wait(interval_ns) {
                    // Too much is dirty, or its time has come.
                    let expired_ns = time::now_ns().saturating_sub(core.options.dirty_expire_ns);
                    let before_ns = if called { u64::MAX } else { expired_ns };
                    // A failure has turned the file system read-only, which the next operation reports.
                    let _reported_by_the_next_operation = core.write_back_since(before_ns);
                    if !planted::has(Bug::TimerLeavesGroup) {
                        let _reported_by_the_next_operation = core.commit_groups();
                    }
                }
            })
        });
        Ok(Self { core, recovered, flusher })
    }

    /// What `RECOVER()` found when this was mounted.
    pub const fn recovered(&self) -> RecoverReport {
        self.recovered
    }

    /// The device under the file system.
    pub fn device(&self) -> &Arc<D> {
        &self.core.device
    }

    /// What the superblock says, as of this mount.
    pub fn info(&self) -> Info {
        Info::of(&self.core.superblock, &self.core.state)
    }

    /// Why the file system turned read-only, if a device error made it.
    pub fn failure(&self) -> Option<String> {
        self.core.names.health.failure()
    }

    /// Writes everything back, deletes files without names, and marks the file system clean. Nobody uses it
    /// any more.
    ///
    /// # Errors
    /// [`Error::Io`](amphi_vfs::Error::Io); the file system is then as after a crash.
    pub fn unmount(mut self) -> Result<()> {
        self.stop_flusher();
        let core = &self.core;
        if core.options.read_only {
            return Ok(());
        }
        core.write_back_all()?;
        amphi_names::write_all_atimes(&**core)?;
        for (_, ino) in core.orphans.filled() {
            amphi_names::delete_orphan(&**core, &core.inode(Ino(u64::from(ino)))?)?;
        }
        core.commit_groups()?;
        core.device.flush().map_err(io_error)?;
        let mut state = core.state;
        state.unmounted_ns = core.names.clock.now().into();
        state.clean = 1.into();
        mount::write_state(core, state)
    }

    fn stop_flusher(&mut self) {
        if let Some(flusher) = self.flusher.take() {
            self.core.background.stop();
            flusher.join();
        }
    }

    /// What the page cache takes.
    pub fn cache_use(&self) -> CacheUse {
        self.core.pages.usage()
    }

    /// Inodes in host memory.
    pub fn cached_inodes(&self) -> usize {
        self.core.names.cache.len()
    }
}

impl<D: BlockPort + WriteLog + 'static> Drop for ByteFs<D> {
    fn drop(&mut self) {
        self.stop_flusher();
    }
}

impl<D: BlockPort + WriteLog + 'static> FileSystem for ByteFs<D> {
    fn promise(&self) -> Promise {
        Promise {
            metadata_durable_on_return: !self.core.groups_metadata(),
            atomic_writes: self.core.journals_data(),
            data_durable_on_return: self.core.options.sync_writes,
        }
    }

    amphi_names::forward_names!(self => &*self.core);

    fn read(&self, ino: Ino, offset: u64, into: &mut [u8], direct: bool) -> Result<usize> {
        if direct {
            return direct::read(&self.core, &*self.core.inode(ino)?, offset, into);
        }
        file::read(&self.core, &*self.core.inode(ino)?, offset, into)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], mut mode: WriteMode, cred: &Cred) -> Result<usize> {
        mode.sync_data |= self.core.options.sync_writes;
        mode.sync_metadata |= self.core.options.sync_writes;
        let inode = &*self.core.inode(ino)?;
        let written = with_room(&*self.core, || {
            let write = if mode.direct { direct::write } else { file::write };
            write(&self.core, inode, offset, data, mode, cred)
        })?;
        if mode.sync_data || mode.sync_metadata {
            self.core.commit_inode(number(inode))?;
        }
        Ok(written)
    }

    fn fsync(&self, ino: Ino, data_only: bool) -> Result<()> {
        let inode = self.core.inode(ino)?;
        {
            let mut state = inode.state.write();
            // Everything else has joined a group, or is durable, when the operation that changed it returns.
            if let Body::File(_) = state.body {
                write_back(&self.core, &inode, &mut state, data_only)?;
            }
        }
        self.core.commit_inode(number(&inode))
    }

    fn sync(&self) -> Result<()> {
        if planted::has(Bug::SyncForgotten) {
            return Ok(());
        }
        self.core.write_back_all()?;
        self.core.health.sound()?;
        self.core.commit_groups()
    }

    fn statfs(&self) -> Result<StatFs> {
        let core = &self.core;
        // Free once their group counts, which whoever finds no others waits for.
        let freed = core.groups.freed();
        Ok(StatFs {
            block_bytes: PAGE as u32,
            blocks: core.layout.pages - core.layout.metadata_pages(),
            blocks_free: core.blocks.free() + freed,
            blocks_available: core.blocks.available() + freed,
            inodes: core.inodes.bits() - 1,
            inodes_free: core.inodes.available(),
            name_bytes_max: NAME_BYTES_MAX as u32,
        })
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        file::seek(&*self.core.inode(ino)?, offset, what)
    }

    fn allocate(&self, ino: Ino, offset: u64, length: u64, what: Allocate, cred: &Cred) -> Result<()> {
        let run = || allocate::allocate(&self.core, ino, offset, length, what, cred);
        match run() {
            Err(Error::NoSpace) if self.core.groups.freed() > 0 => {
                self.core.commit_groups()?;
                run()?;
            }
            done => done?,
        }
        // Parts of pages were zeroed in the cache.
        if self.core.options.sync_writes { self.fsync(ino, false) } else { Ok(()) }
    }

    fn discard_free(&self, range: Range<u64>, shortest: u64) -> Result<u64> {
        discard::discard_free(&self.core, range, shortest)
    }
}
