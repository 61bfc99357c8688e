//! Inodes in host DRAM.

use amphi_device::BlockPort;
use amphi_vfs::{Error, FileType, Ino, Result};
use zerocopy::FromZeros;

use crate::core::Core;
use crate::data::file::FileBody;
use crate::format::{
    DiskInode, FLAG_INDEXED, FLAG_INLINE_TARGET, INLINE_TARGET_MAX, INODE_BYTES, ROOT_BYTES, ROOT_EXTENTS,
    mode,
};
use crate::index::dir;
use crate::index::extent::{Extents, write_node};
use crate::index::xattr::Xattrs;
use crate::journal::Handle;
use crate::journal::buffers::Kind;

/// The type bits of `st_mode`.
pub const fn type_bits(file_type: FileType) -> u16 {
    match file_type {
        FileType::Fifo => 0o010_000,
        FileType::CharDevice => 0o020_000,
        FileType::Directory => 0o040_000,
        FileType::BlockDevice => 0o060_000,
        FileType::Regular => 0o100_000,
        FileType::Symlink => 0o120_000,
        FileType::Socket => 0o140_000,
    }
}

/// The type that `st_mode` says, if it says one.
pub const fn file_type(mode: u16) -> Option<FileType> {
    Some(match mode & mode::TYPE {
        0o010_000 => FileType::Fifo,
        0o020_000 => FileType::CharDevice,
        0o040_000 => FileType::Directory,
        0o060_000 => FileType::BlockDevice,
        0o100_000 => FileType::Regular,
        0o120_000 => FileType::Symlink,
        0o140_000 => FileType::Socket,
        _ => return None,
    })
}

/// What is particular to a type.
pub enum Body {
    /// A regular file's pages.
    File(FileBody),
    /// A directory; whether it has an index.
    Dir {
        /// Its block 0 is an index of hashes.
        indexed: bool,
    },
    /// A symbolic link's target.
    Symlink(Vec<u8>),
    /// Nothing.
    Special,
}

/// A cached inode of the file system.
pub type Inode<D> = amphi_names::Inode<Core<D>>;
/// What its lock protects.
pub type State<D> = amphi_names::State<Core<D>>;

/// The number of an inode, which was in range when it was loaded or made.
pub fn number<D: BlockPort>(inode: &Inode<D>) -> u32 {
    inode.ino.0 as u32
}

/// What the file system keeps in an inode.
pub struct Part {
    /// Length that the journal knows: data behind it have not been written yet.
    pub size_on_disk: u64,
    /// Blocks allocated: data, extent blocks, attributes.
    pub blocks: u32,
    /// Where its blocks are.
    pub extents: Extents,
    /// Where its extended attributes are.
    pub xattrs: Xattrs,
    /// The transaction that changed it last.
    pub sync_tid: u32,
    /// The transaction that changed last what is needed to read its data.
    pub datasync_tid: u32,
    /// What is particular to its type.
    pub body: Body,
}

impl Part {
    /// What a new inode starts with: `size` bytes that the device holds.
    pub fn new(body: Body, size: u64) -> Self {
        Self {
            size_on_disk: size,
            blocks: 0,
            extents: Extents::default(),
            xattrs: Xattrs::default(),
            sync_tid: 0,
            datasync_tid: 0,
            body,
        }
    }

    /// The regular file's part.
    ///
    /// # Errors
    /// [`Error::IsDirectory`], [`Error::Invalid`].
    pub fn file(&self) -> Result<&FileBody> {
        match &self.body {
            Body::File(file) => Ok(file),
            Body::Dir { .. } => Err(Error::IsDirectory),
            _ => Err(Error::Invalid("not a regular file")),
        }
    }

    /// As [`file`](Self::file), to change it.
    ///
    /// # Errors
    /// As there.
    pub fn file_mut(&mut self) -> Result<&mut FileBody> {
        match &mut self.body {
            Body::File(file) => Ok(file),
            Body::Dir { .. } => Err(Error::IsDirectory),
            _ => Err(Error::Invalid("not a regular file")),
        }
    }

    /// Whether a directory has an index.
    ///
    /// # Errors
    /// [`Error::NotDirectory`].
    pub const fn dir(&self) -> Result<bool> {
        match &self.body {
            Body::Dir { indexed } => Ok(*indexed),
            _ => Err(Error::NotDirectory),
        }
    }

    /// Blocks of a directory.
    pub const fn dir_blocks(&self) -> u32 {
        (self.size_on_disk / crate::format::BLOCK as u64) as u32
    }

    fn flags(&self) -> u16 {
        match &self.body {
            Body::Dir { indexed: true } => FLAG_INDEXED,
            Body::Symlink(target) if target.len() <= INLINE_TARGET_MAX => FLAG_INLINE_TARGET,
            _ => 0,
        }
    }
}

/// Reads an inode whose number is in use.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn load<D: BlockPort>(core: &Core<D>, ino: u32) -> Result<Inode<D>> {
    let corrupt = |what: &str| Error::corrupt("inode", u64::from(ino), what.to_owned());
    let (lba, at) = core.layout.inode_place(ino);
    let block = core.block(lba, Kind::Inodes)?;
    let disk =
        DiskInode::decode(&block[at..at + INODE_BYTES], ino).map_err(|error| corrupt(&error.to_string()))?;
    let file_type = file_type(disk.mode.get()).ok_or_else(|| corrupt("it has an unknown type"))?;
    let inline_target = disk.flags.get() & FLAG_INLINE_TARGET != 0;
    let extents = if inline_target { Extents::default() } else { Extents::load(core, &disk.root, ino)? };
    let size = disk.size.get();
    let body = match file_type {
        FileType::Regular if size > crate::data::file::FILE_BYTES_MAX => {
            return Err(corrupt("it is too long"));
        }
        FileType::Regular => Body::File(FileBody::default()),
        FileType::Directory => {
            if size == 0 || !size.is_multiple_of(crate::format::BLOCK as u64) || size >> 44 != 0 {
                return Err(corrupt("a directory cannot have this size"));
            }
            Body::Dir { indexed: disk.flags.get() & FLAG_INDEXED != 0 }
        }
        FileType::Symlink if inline_target => {
            let target = disk.root.get(..size as usize).filter(|target| target.len() <= INLINE_TARGET_MAX);
            Body::Symlink(target.ok_or_else(|| corrupt("its target is too long"))?.to_vec())
        }
        FileType::Symlink => {
            let long = corrupt("its target has no block or is too long");
            let crate::index::extent::Mapped::At { lba, .. } = extents.map(0) else { return Err(long) };
            let block = core.block(u64::from(lba), Kind::Data)?;
            Body::Symlink(block.get(..size as usize).ok_or(long)?.to_vec())
        }
        _ => Body::Special,
    };
    let xattrs = Xattrs::of_inode(&disk, &core.layout).map_err(corrupt)?;
    let parent = match file_type {
        FileType::Directory => dir::parent_of(core, ino, &extents)?,
        _ => 0,
    };
    // What changed it may not have been committed: its number is not kept, so the newest stands for it.
    let tid = core.journal.newest();
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
    pub fn write_inode(&mut self, inode: &Inode<D>, state: &mut State<D>, datasync: bool) -> Result<()> {
        let ino = number(inode);
        let mut root = [0; ROOT_BYTES];
        match &state.body {
            Body::Symlink(target) if target.len() <= INLINE_TARGET_MAX => {
                root[..target.len()].copy_from_slice(target);
            }
            Body::Special => write_node(&mut root, ROOT_EXTENTS, 0, &[]),
            _ => {
                let goal = state.extents.goal(u32::MAX).unwrap_or_else(|| self.core.groups.goal(ino));
                let (bytes, grown) = state.extents.write(self, goal)?;
                root = bytes;
                state.blocks = (i64::from(state.blocks) + grown) as u32;
            }
        }
        let mut disk = DiskInode::new_zeroed();
        disk.mode = (type_bits(state.file_type) | state.mode).into();
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
        let (lba, at) = self.core.layout.inode_place(ino);
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
