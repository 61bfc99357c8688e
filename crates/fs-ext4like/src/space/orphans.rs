//! Orphans: inodes without a name that are still in use, and files that are being cut. As on ext4 they form a
//! list that starts in the superblock and goes on in the inodes, so an unlink changes the superblock too.

use amphi_device::BlockPort;
use amphi_vfs::{Error, Result};
use zerocopy::FromBytes;

use crate::format::{DiskInode, INODE_BYTES, Superblock};
use crate::journal::buffers::{Block, Kind};
use crate::journal::handle::Handle;
use crate::space::list::Orphans;

fn set_first(block: &mut Block, ino: u32) {
    if let Ok((sb, _)) = Superblock::mut_from_prefix(block) {
        sb.last_orphan = ino.into();
    }
}

fn set_next<D: BlockPort>(handle: &mut Handle<'_, D>, ino: u32, next: u32) -> Result<()> {
    let (lba, at) = handle.base.layout.inode_place(ino);
    handle.modify(lba, Kind::Inodes, |block| {
        let slot = &mut block[at..at + INODE_BYTES];
        let mut inode = DiskInode::decode(slot, ino)
            .map_err(|error| Error::corrupt("inode", u64::from(ino), error.to_string()))?;
        inode.next_orphan = next.into();
        slot.copy_from_slice(&inode.encode(ino));
        Ok(())
    })?
}

impl Orphans {
    /// Adds an inode at the front. It is in the table.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn add<D: BlockPort>(&self, handle: &mut Handle<'_, D>, ino: u32) -> Result<()> {
        let mut list = self.0.lock();
        let next = list.last().copied().unwrap_or(0);
        let first = handle.modify(0, Kind::Superblock, |block| set_first(block, ino));
        let written = first.and_then(|()| set_next(handle, ino, next));
        handle.judge(written)?;
        list.push(ino);
        Ok(())
    }

    /// Takes an inode out, wherever it stands.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn remove<D: BlockPort>(&self, handle: &mut Handle<'_, D>, ino: u32) -> Result<()> {
        let mut list = self.0.lock();
        let Some(at) = list.iter().position(|other| *other == ino) else { return Ok(()) };
        let next = if at == 0 { 0 } else { list[at - 1] };
        let around = match list.get(at + 1) {
            Some(before) => set_next(handle, *before, next),
            None => handle.modify(0, Kind::Superblock, |block| set_first(block, next)),
        };
        let written = around.and_then(|()| set_next(handle, ino, 0));
        handle.judge(written)?;
        list.remove(at);
        Ok(())
    }
}
