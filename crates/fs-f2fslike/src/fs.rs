//! [`F2fsLike`]: the mounted file system, and its operations as `vfs` names them.

use std::ops::Range;
use std::sync::Arc;

use amphi_device::BlockPort;
use amphi_segments::Running;
use amphi_vfs::{FileSystem, Ino, Promise, Result, StatFs};

use crate::core::{Core, Options};
use crate::mount::{self, MountError};
use crate::sync;

/// A mounted file system of F2FS's kind.
///
/// Dropping it without [`unmount`](Self::unmount) is a crash of the file system: what was durable is there
/// after the next mount.
pub struct F2fsLike<D: BlockPort + 'static> {
    core: Running<Core<D>>,
}

impl<D: BlockPort + 'static> F2fsLike<D> {
    /// Mounts the file system on `device`.
    ///
    /// # Errors
    /// As [`MountError`] says.
    pub(crate) fn open(
        device: &Arc<D>,
        options: Options,
        names: amphi_names::Options,
    ) -> std::result::Result<Self, MountError> {
        let core = mount::open(device, options, names)?;
        let interval_ns = if options.read_only { 0 } else { options.interval_ns };
        Ok(Self { core: Running::new(core, "f2fslike-checkpoint", interval_ns, sync::sync) })
    }

    pub(crate) fn core(&self) -> &Core<D> {
        &self.core
    }

    /// The device under the file system.
    pub fn device(&self) -> &Arc<D> {
        &self.core.ground.device
    }

    /// Why the file system turned read-only, if an error made it.
    pub fn failure(&self) -> Option<String> {
        self.core.names.health.failure()
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

impl<D: BlockPort + 'static> FileSystem for F2fsLike<D> {
    fn promise(&self) -> Promise {
        Promise { metadata_durable_on_return: false, atomic_writes: false, data_durable_on_return: false }
    }

    amphi_names::forward_names!(self => &*self.core);
    amphi_segments::forward_files!(self => &*self.core);

    fn fsync(&self, ino: Ino, data_only: bool) -> Result<()> {
        sync::fsync(&self.core, &self.core.inode(ino)?, data_only)
    }

    fn sync(&self) -> Result<()> {
        sync::sync(&self.core)
    }

    fn statfs(&self) -> Result<StatFs> {
        Ok(self.core.space.statfs(u64::from(self.core.layout.nids() - 1), self.core.inodes_free()))
    }

    fn discard_free(&self, range: Range<u64>, shortest: u64) -> Result<u64> {
        self.core.names.health.writable()?;
        self.core.segments.discard_free(&self.core.ground, range, shortest)
    }
}
