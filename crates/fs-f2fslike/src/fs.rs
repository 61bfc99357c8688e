//! [`F2fsLike`]: the mounted file system, and its operations as `vfs` names them.

use std::sync::Arc;

use amphi_device::BlockPort;
use amphi_names::with_room;
use amphi_rt::task::{self, JoinHandle};
use amphi_segments::files;
use amphi_vfs::{Allocate, Cred, FileSystem, Ino, NAME_BYTES_MAX, Promise, Result, Seek, StatFs, WriteMode};

use crate::core::{Core, Options};
use crate::format::PAGE;
use crate::mount::{self, MountError};
use crate::{allocate, checkpoint, file};

/// A mounted file system of F2FS's kind.
///
/// Dropping it without [`unmount`](Self::unmount) is a crash of the file system: what was durable is there
/// after the next mount.
pub struct F2fsLike<D: BlockPort + 'static> {
    core: Arc<Core<D>>,
    background: Option<JoinHandle<()>>,
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
        let background = (options.interval_ns > 0 && !options.read_only).then(|| {
            let core = Arc::clone(&core);
            task::spawn("f2fslike-checkpoint", move || {
                core.bell.run(options.interval_ns, &core.names.health, || checkpoint::sync(&core));
            })
        });
        Ok(Self { core, background })
    }

    pub(crate) const fn core(&self) -> &Arc<Core<D>> {
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

impl<D: BlockPort + 'static> Drop for F2fsLike<D> {
    fn drop(&mut self) {
        self.stop();
    }
}

impl<D: BlockPort + 'static> FileSystem for F2fsLike<D> {
    fn promise(&self) -> Promise {
        Promise { metadata_durable_on_return: false, atomic_writes: false, data_durable_on_return: false }
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
        checkpoint::fsync(&self.core, &self.core.inode(ino)?)
    }

    fn sync(&self) -> Result<()> {
        checkpoint::sync(&self.core)
    }

    fn statfs(&self) -> Result<StatFs> {
        let core = &self.core;
        Ok(StatFs {
            block_bytes: PAGE as u32,
            blocks: core.space.capacity(),
            blocks_free: core.space.free(),
            blocks_available: core.space.free(),
            inodes: (core.layout.nids() - 1).into(),
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
