//! Inodes in host DRAM.

use amphi_device::BlockPort;
use amphi_page_cache::{Mapped, Mapping};
use amphi_vfs::{Error, FileType, Ino, Result};
use zerocopy::FromZeros;

use crate::base::Base;
use crate::data::body::FileBody;
use crate::format::{
    DiskInode, FILE_BYTES_MAX, FLAG_INDEXED, FLAG_INLINE_TARGET, INLINE_TARGET_MAX, INODE_BYTES, ROOT_BYTES,
    ROOT_EXTENTS, mode,
};
use crate::index::dir;
use crate::index::extent::{Extents, write_node};
use crate::index::part::{Body, Inode, Part, State};
use crate::index::xattr::Xattrs;
use crate::journal::buffers::Kind;
use crate::journal::handle::Handle;

/// The number of an inode, which was in range when it was loaded or made.
pub fn number(inode: &Inode) -> u32 {
    inode.ino.0 as u32
}

/// Reads an inode whose number is in use.
///
/// # Errors
/// [`Error::Stale`] if it has been freed since its number was looked at; [`Error::Corrupt`], [`Error::Io`].
pub fn load<D: BlockPort>(base: &Base<D>, ino: u32) -> Result<Inode> {
    let corrupt = |what: &str| Error::corrupt("inode", u64::from(ino), what.to_owned());
    let (lba, at) = base.layout.inode_place(ino);
    let block = base.block(lba, Kind::Inodes)?;
    let slot = &block[at..at + INODE_BYTES];
    if slot.iter().all(|byte| *byte == 0) {
        return Err(Error::Stale(Ino(ino.into())));
    }
    let disk = DiskInode::decode(slot, ino).map_err(|error| corrupt(&error.to_string()))?;
    let file_type = FileType::of_mode(disk.mode.get()).ok_or_else(|| corrupt("it has an unknown type"))?;
    let inline_target = disk.flags.get() & FLAG_INLINE_TARGET != 0;
    let extents = if inline_target { Extents::default() } else { Extents::load(base, &disk.root, ino)? };
    let size = disk.size.get();
    let body = match file_type {
        FileType::Regular if size > FILE_BYTES_MAX => {
            return Err(corrupt("it is too long"));
        }
        FileType::Regular => Body::File(FileBody::default()),
        FileType::Directory => {
            if size == 0 || !size.is_multiple_of(crate::format::BLOCK as u64) || size >> 44 != 0 {
                return Err(corrupt("a directory cannot have this size"));
            }
            Body::Dir(disk.flags.get() & FLAG_INDEXED != 0)
        }
        FileType::Symlink if inline_target => {
            let target = disk.root.get(..size as usize).filter(|target| target.len() <= INLINE_TARGET_MAX);
            Body::Symlink(target.ok_or_else(|| corrupt("its target is too long"))?.to_vec())
        }
        FileType::Symlink => {
            let long = corrupt("its target has no block or is too long");
            let Mapped::At { lba, .. } = extents.map(0) else { return Err(long) };
            let block = base.block(lba, Kind::Data)?;
            Body::Symlink(block.get(..size as usize).ok_or(long)?.to_vec())
        }
        _ => Body::Special,
    };
    let xattrs = Xattrs::of_inode(&disk, &base.layout).map_err(corrupt)?;
    let parent = match file_type {
        FileType::Directory => dir::parent_of(base, ino, &extents)?,
        _ => 0,
    };
    // What changed it may not have been committed: its number is not kept, so the newest stands for it.
    let tid = base.journal.newest();
    let part = Part {
        blocks: disk.blocks.get(),
        extents,
        xattrs,
        sync_tid: tid,
        datasync_tid: tid,
        ..Part::new(body, size)
    };
    let state = State {
        file_type,
        mode: disk.mode.get() & !mode::TYPE,
        uid: disk.uid.get(),
        gid: disk.gid.get(),
        nlink: disk.nlink.get(),
        size,
        atime: disk.atime.get(),
        mtime: disk.mtime.get(),
        ctime: disk.ctime.get(),
        generation: disk.generation.get(),
        rdev: disk.rdev.get(),
        attributes: None,
        orphan: false,
        unnamed: false,
        gone: false,
        atime_dirty: false,
        part,
    };
    Ok(Inode::new(Ino(u64::from(ino)), Ino(u64::from(parent)), state))
}

impl<D: BlockPort> Handle<'_, D> {
    /// Writes the inode, with its extent blocks, into the handle's transaction. `datasync`: what changed is
    /// needed to read its data.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Corrupt`], [`Error::Io`].
    pub fn write_inode(&mut self, inode: &Inode, state: &mut State, datasync: bool) -> Result<()> {
        let written = self.encode_inode(inode, state, datasync);
        self.judge(written)
    }

    fn encode_inode(&mut self, inode: &Inode, state: &mut State, datasync: bool) -> Result<()> {
        let ino = number(inode);
        let mut root = [0; ROOT_BYTES];
        match &state.body {
            Body::Symlink(target) if target.len() <= INLINE_TARGET_MAX => {
                root[..target.len()].copy_from_slice(target);
            }
            Body::Special => write_node(&mut root, ROOT_EXTENTS, 0, &[]),
            _ => {
                let goal = state.extents.goal(u32::MAX).unwrap_or_else(|| self.base.groups.goal(ino));
                let (bytes, grown) = state.extents.write(self, goal)?;
                root = bytes;
                state.blocks = (i64::from(state.blocks) + grown) as u32;
            }
        }
        let mut disk = DiskInode::new_zeroed();
        disk.mode = (state.file_type.mode_bits() | state.mode).into();
        disk.flags = state.flags().into();
        disk.nlink = state.nlink.into();
        disk.uid = state.uid.into();
        disk.gid = state.gid.into();
        disk.size = state.size_on_disk.into();
        disk.atime = state.atime.into();
        disk.mtime = state.mtime.into();
        disk.ctime = state.ctime.into();
        disk.blocks = state.blocks.into();
        disk.generation = state.generation.into();
        disk.rdev = state.rdev.into();
        disk.root = root;
        state.xattrs.put_into(&mut disk);
        let (lba, at) = self.base.layout.inode_place(ino);
        self.modify(lba, Kind::Inodes, |block| {
            let slot = &mut block[at..at + INODE_BYTES];
            // The list of orphans is kept there, by those who change it.
            if let Ok(before) = DiskInode::decode(slot, ino) {
                disk.next_orphan = before.next_orphan;
            }
            slot.copy_from_slice(&disk.encode(ino));
        })?;
        state.sync_tid = self.tid;
        if datasync {
            state.datasync_tid = self.tid;
        }
        Ok(())
    }
}
