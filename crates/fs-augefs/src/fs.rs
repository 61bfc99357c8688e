//! [`AugeFs`]: the mounted file system, and its operations as `vfs` names them.

use std::ops::Range;
use std::sync::Arc;

use amphi_device::{BlockPort, MemoryArea};
use amphi_segments::{Running, files};
use amphi_vfs::{FileSystem, Ino, Promise, Result, StatFs};

use crate::core::Core;
use crate::mount::{self, Info, MountError};
use crate::options::{FormatOptions, MountOptions};
use crate::overlay::Overlay;
use crate::recover::Recovered;
use crate::stats::Stats;

/// A mounted AugeFS.
///
/// Dropping it without [`unmount`](Self::unmount) is a crash of the file system.
pub struct AugeFs<D: BlockPort + MemoryArea + 'static> {
    core: Running<Core<Overlay<D>>>,
    recovered: Recovered,
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
        let interval_ns = if options.read_only { 0 } else { options.checkpoint_interval_ns };
        let under = if options.read_only { Overlay::over(device) } else { Overlay::through(device) };
        let (core, recovered) = mount::open(&under, options)?;
        let core = Running::new(core, "augefs-background", interval_ns, mount::sync);
        Ok(Self { core, recovered })
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
        self.core.stop();
        mount::close(&self.core)
    }
}

impl<D: BlockPort + MemoryArea + 'static> FileSystem for AugeFs<D> {
    fn promise(&self) -> Promise {
        Promise { metadata_durable_on_return: true, atomic_writes: false, data_durable_on_return: false }
    }

    amphi_names::forward_names!(self => &*self.core);
    amphi_segments::forward_files!(self => &*self.core);

    fn fsync(&self, ino: Ino, _data_only: bool) -> Result<()> {
        let inode = self.core.inode(ino)?;
        // Whatever changes of the metadata were acknowledged are durable.
        if inode.beside.is_listed() { files::write_back_file(&*self.core, &inode) } else { Ok(()) }
    }

    fn sync(&self) -> Result<()> {
        mount::sync(&self.core)
    }

    fn statfs(&self) -> Result<StatFs> {
        Ok(self.core.space.statfs(self.core.inodes_max, self.core.inodes_free()))
    }

    fn discard_free(&self, range: Range<u64>, shortest: u64) -> Result<u64> {
        self.core.names.health.writable()?;
        self.core.segments.discard_free(&self.core.ground, range, shortest)
    }
}
