//! [`AugeFs`]: the mounted file system, and its operations as `vfs` names them.

use std::sync::Arc;

use amphi_device::{BlockPort, MemoryArea};
use amphi_names::with_room;
use amphi_rt::task::{self, JoinHandle};
use amphi_segments::files;
use amphi_vfs::{Allocate, Cred, FileSystem, Ino, NAME_BYTES_MAX, Promise, Result, Seek, StatFs, WriteMode};

use crate::core::Core;
use crate::format::PAGE;
use crate::mount::{self, Info, MountError};
use crate::options::{FormatOptions, MountOptions};
use crate::overlay::Overlay;
use crate::recover::Recovered;
use crate::stats::Stats;
use crate::{allocate, file};

/// A mounted AugeFS.
///
/// Dropping it without [`unmount`](Self::unmount) is a crash of the file system.
pub struct AugeFs<D: BlockPort + MemoryArea + 'static> {
    core: Arc<Core<Overlay<D>>>,
    recovered: Recovered,
    background: Option<JoinHandle<()>>,
}

impl<D: BlockPort + MemoryArea + 'static> AugeFs<D> {
    /// Makes an empty file system on `device`, over whatever was there.
    ///
    /// # Errors
    /// [`MountError::Unsuitable`], [`MountError::Device`], [`MountError::Damaged`].
    pub fn format(device: &Arc<D>, options: &FormatOptions) -> std::result::Result<(), MountError> {
        mount::format(device, options)
    }

    /// Mounts the file system on `device`, recovering it if need be. With [`MountOptions::read_only`] nothing
    /// is written, recovery neither.
    ///
    /// # Errors
    /// As [`MountError`] says.
    pub fn mount(device: &Arc<D>, options: MountOptions) -> std::result::Result<Self, MountError> {
        let runs = options.checkpoint_interval_ns > 0 && !options.read_only;
        let under = if options.read_only { Overlay::over(device) } else { Overlay::through(device) };
        let (core, recovered) = mount::open(&under, options)?;
        let background = runs.then(|| {
            let core = Arc::clone(&core);
            task::spawn("augefs-background", move || {
                let interval_ns = core.options.checkpoint_interval_ns;
                core.bell.run(interval_ns, &core.names.health, || mount::sync(&core));
            })
        });
        Ok(Self { core, recovered, background })
    }

    /// What recovery found when this was mounted.
    pub const fn recovered(&self) -> &Recovered {
        &self.recovered
    }

    /// The device under the file system.
    pub fn device(&self) -> &Arc<D> {
        self.core.device.device()
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
        self.core.counters.stats()
    }

    /// The segments that each domain owns.
    pub fn segments_by_domain(&self) -> Vec<Vec<u32>> {
        let owned = |domain: &amphi_segments::Domain| domain.parts.lock().segments(|_| true);
        self.core.domains.iter().map(owned).collect()
    }

    /// Deletes files without names, writes everything back, and marks the file system clean. Nobody uses it
    /// any more.
    ///
    /// # Errors
    /// [`Error::Io`](amphi_vfs::Error::Io); the file system is then as after a crash.
    pub fn unmount(mut self) -> Result<()> {
        self.stop();
        mount::close(&self.core)
    }

    fn stop(&mut self) {
        if let Some(background) = self.background.take() {
            self.core.bell.stop();
            background.join();
        }
    }
}

impl<D: BlockPort + MemoryArea + 'static> Drop for AugeFs<D> {
    fn drop(&mut self) {
        self.stop();
    }
}

impl<D: BlockPort + MemoryArea + 'static> FileSystem for AugeFs<D> {
    fn promise(&self) -> Promise {
        Promise { metadata_durable_on_return: true, atomic_writes: false, data_durable_on_return: false }
    }

    amphi_names::forward_names!(self => &*self.core);

    fn read(&self, ino: Ino, offset: u64, into: &mut [u8], direct: bool) -> Result<usize> {
        files::read(&*self.core, &self.core.inode(ino)?, offset, into, direct)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], mode: WriteMode, cred: &Cred) -> Result<usize> {
        let inode = &self.core.inode(ino)?;
        with_room(&*self.core, || file::write(&self.core, inode, offset, data, mode, cred))
    }

    fn fsync(&self, ino: Ino, _data_only: bool) -> Result<()> {
        let inode = self.core.inode(ino)?;
        // Whatever changes of the metadata were acknowledged are durable.
        if self.core.cache.is_dirty(ino) { files::write_back_file(&*self.core, &inode) } else { Ok(()) }
    }

    fn sync(&self) -> Result<()> {
        mount::sync(&self.core)
    }

    fn statfs(&self) -> Result<StatFs> {
        let core = &self.core;
        Ok(StatFs {
            block_bytes: PAGE as u32,
            blocks: core.space.capacity(),
            blocks_free: core.space.free(),
            blocks_available: core.space.free(),
            inodes: core.inodes_max,
            inodes_free: core.inodes_free(),
            name_bytes_max: NAME_BYTES_MAX as u32,
        })
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        allocate::seek(&self.core, &*self.core.inode(ino)?, offset, what)
    }

    fn allocate(&self, ino: Ino, offset: u64, length: u64, what: Allocate, cred: &Cred) -> Result<()> {
        let inode = &self.core.inode(ino)?;
        with_room(&*self.core, || allocate::allocate(&self.core, inode, offset, length, what, cred))
    }
}
