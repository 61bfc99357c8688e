//! [`DevFs`]: the mounted file system as its host sees it.

use std::sync::Arc;

use amphi_device::{BlockPort, MemoryArea};
use amphi_names::{note_read, read_moves_atime, regular, with_room};
use amphi_vfs::{Allocate, Cred, FileSystem, Ino, NAME_BYTES_MAX, Promise, Result, Seek, StatFs, WriteMode};
use serde_json::{Map, Value, json};

use crate::away::HostMemory;
use crate::controller::Controller;
use crate::format::{PAGE, Superblock};
use crate::mount::{self, MountError, Mounted};
use crate::options::{FormatOptions, MountOptions};
use crate::recover::Recovered;

/// A mounted DevFS.
pub struct DevFs<D: BlockPort + MemoryArea + 'static> {
    mounted: Mounted<D>,
    host: Arc<HostMemory>,
}

impl<D: BlockPort + MemoryArea + 'static> DevFs<D> {
    /// Makes an empty one, over whatever was there.
    ///
    /// # Errors
    /// [`MountError`].
    pub fn format(device: &Arc<D>, options: &FormatOptions) -> std::result::Result<(), MountError> {
        mount::format(device, options)
    }

    /// Mounts the one on a device.
    ///
    /// # Errors
    /// [`MountError`].
    pub fn mount(device: &Arc<D>, options: &MountOptions) -> std::result::Result<Self, MountError> {
        let host = Arc::new(HostMemory::new(options.host_memory));
        Ok(Self { mounted: mount::open(device, options, &host)?, host })
    }

    /// Brings everything in place and ends the mount.
    ///
    /// # Errors
    /// [`amphi_vfs::Error::Io`].
    pub fn unmount(self) -> Result<()> {
        self.mounted.close()
    }

    fn controller(&self) -> &Controller<D> {
        &self.mounted.controller
    }

    /// The device.
    pub fn device(&self) -> &Arc<D> {
        &self.controller().media.device
    }

    /// What the last power-up found.
    pub const fn recovered(&self) -> Recovered {
        self.mounted.recovered
    }

    /// The host's memory that the device keeps things in.
    pub const fn host_memory(&self) -> &Arc<HostMemory> {
        &self.host
    }

    pub(crate) fn superblock(&self) -> Superblock {
        *self.mounted.superblock.lock()
    }

    /// What the controller counts, and what has its memory (§4.4).
    pub fn stats(&self) -> Map<String, Value> {
        let controller = self.controller();
        let mut stats = controller.counters.report();
        stats.insert("memory".into(), Value::Object(controller.memory.report()));
        stats.insert("host_memory_used".into(), json!(self.host.used()));
        stats.insert("slots".into(), json!(controller.slots.count()));
        stats.insert("slots_in_use".into(), json!(controller.slots.in_use()));
        stats
    }
}

impl<D: BlockPort + MemoryArea + 'static> FileSystem for DevFs<D> {
    amphi_names::forward_names!(self => self.controller());

    fn promise(&self) -> Promise {
        Promise { metadata_durable_on_return: true, atomic_writes: false, data_durable_on_return: true }
    }

    fn read(&self, ino: Ino, offset: u64, into: &mut [u8], _: bool) -> Result<usize> {
        let fs = self.controller();
        let inode = amphi_names::inode(fs, ino)?;
        regular(inode.file_type)?;
        let (count, moves) = {
            let state = inode.state.read();
            (fs.read_file(&inode, &state, offset, into)?, read_moves_atime(fs, &state))
        };
        if moves {
            note_read(fs, &inode);
        }
        Ok(count)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], mode: WriteMode, cred: &Cred) -> Result<usize> {
        let fs = self.controller();
        let inode = amphi_names::inode(fs, ino)?;
        regular(inode.file_type)?;
        fs.names.health.writable()?;
        with_room(fs, || {
            let mut state = inode.state.write();
            if !data.is_empty() {
                let offset = if mode.append { state.size } else { offset };
                fs.write_file(&inode, &mut state, offset, data, cred)?;
            }
            Ok(data.len())
        })
    }

    fn fsync(&self, ino: Ino, _: bool) -> Result<()> {
        amphi_names::inode(self.controller(), ino).map(drop)
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn statfs(&self) -> Result<StatFs> {
        let fs = self.controller();
        let free = fs.blocks.available() + fs.freed_pages.lock().len() as u64;
        Ok(StatFs {
            block_bytes: PAGE as u32,
            blocks: fs.layout.pages - fs.layout.first_block,
            blocks_free: free,
            blocks_available: free,
            inodes: fs.layout.inodes,
            inodes_free: fs.inodes.available(),
            name_bytes_max: NAME_BYTES_MAX as u32,
        })
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        let inode = amphi_names::inode(self.controller(), ino)?;
        self.controller().seek_file(&inode, offset, what)
    }

    fn allocate(&self, ino: Ino, offset: u64, length: u64, what: Allocate, cred: &Cred) -> Result<()> {
        let fs = self.controller();
        let inode = amphi_names::inode(fs, ino)?;
        with_room(fs, || fs.allocate_range(&inode, (offset, length), what, cred))
    }
}
