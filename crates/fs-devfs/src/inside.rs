//! The controller as a file system: what commands do, on a processor of the device.

use std::ops::Range;

use amphi_device::{BlockPort, MemoryArea};
use amphi_names::{note_read, read_moves_atime, regular, with_room};
use amphi_vfs::{Allocate, Cred, FileSystem, Ino, NAME_BYTES_MAX, Promise, Result, Seek, StatFs, WriteMode};
use amphi_volume::Discard;

use crate::controller::Controller;
use crate::format::PAGE;

impl<D: BlockPort + MemoryArea + 'static> FileSystem for Controller<D> {
    amphi_names::forward_names!(self => self);

    fn promise(&self) -> Promise {
        Promise { metadata_durable_on_return: true, atomic_writes: false, data_durable_on_return: true }
    }

    fn read(&self, ino: Ino, offset: u64, into: &mut [u8], _: bool) -> Result<usize> {
        let inode = amphi_names::inode(self, ino)?;
        regular(inode.file_type)?;
        let (count, moves) = {
            let state = inode.state.read();
            (self.read_file(&inode, &state, offset, into)?, read_moves_atime(self, &state))
        };
        if moves {
            note_read(self, &inode);
        }
        Ok(count)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8], mode: WriteMode, cred: &Cred) -> Result<usize> {
        let inode = amphi_names::inode(self, ino)?;
        regular(inode.file_type)?;
        self.names.health.writable()?;
        with_room(self, || {
            let mut state = inode.state.write();
            if !data.is_empty() {
                let offset = if mode.append { state.size } else { offset };
                self.write_file(&inode, &mut state, offset, data, cred)?;
            }
            Ok(data.len())
        })
    }

    fn fsync(&self, ino: Ino, _: bool) -> Result<()> {
        amphi_names::inode(self, ino).map(drop)
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn statfs(&self) -> Result<StatFs> {
        let free = self.blocks.available() + self.freed_pages.lock().len() as u64;
        Ok(StatFs {
            block_bytes: PAGE as u32,
            blocks: self.layout.pages - self.layout.first_block,
            blocks_free: free,
            blocks_available: free,
            inodes: self.layout.inodes,
            inodes_free: self.inodes.available(),
            name_bytes_max: NAME_BYTES_MAX as u32,
        })
    }

    fn discard_free(&self, range: Range<u64>, shortest: u64) -> Result<u64> {
        self.names.health.writable()?;
        let mut discard = Discard::new(&*self.media.device, range, shortest, self.layout.pages)?;
        self.blocks.each_free(|run| discard.free_run(run))?;
        Ok(discard.bytes())
    }

    fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        let inode = amphi_names::inode(self, ino)?;
        self.seek_file(&inode, offset, what)
    }

    fn allocate(&self, ino: Ino, offset: u64, length: u64, what: Allocate, cred: &Cred) -> Result<()> {
        let inode = amphi_names::inode(self, ino)?;
        with_room(self, || self.allocate_range(&inode, (offset, length), what, cred))
    }
}
