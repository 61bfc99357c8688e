//! Inodes in host DRAM.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use amphi_device::BlockPort;
use amphi_rt::sync::RwLock;
use amphi_vfs::{Attr, Error, FileType, Ino, Result, TimeSpec};
use zerocopy::FromZeros;

use crate::buffers::Kind;
use crate::core::Core;
use crate::dir;
use crate::extent::{Extents, write_node};
use crate::file::FileBody;
use crate::format::{
    DiskInode, FLAG_INDEXED, FLAG_INLINE_TARGET, INLINE_TARGET_MAX, INODE_BYTES, ROOT_BYTES, ROOT_EXTENTS,
    ROOT_INO, mode,
};
use crate::journal::Handle;
use crate::xattr::Xattrs;

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

/// What changes of an inode.
pub struct State {
    /// Type and permission bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Number of names.
    pub nlink: u32,
    /// Length in bytes.
    pub size: u64,
    /// Length that the journal knows: data behind it have not been written yet.
    pub size_on_disk: u64,
    /// Access time, ns since 1970.
    pub atime: i64,
    /// Modification time.
    pub mtime: i64,
    /// Change time.
    pub ctime: i64,
    /// Distinguishes successive files with one number.
    pub generation: u32,
    /// Device number.
    pub rdev: u32,
    /// Blocks allocated: data, extent blocks, attributes.
    pub blocks: u32,
    /// Where its blocks are.
    pub extents: Extents,
    /// Extended attributes.
    pub xattrs: Xattrs,
    /// It is in the list of orphans.
    pub orphan: bool,
    /// It never had a name.
    pub unnamed: bool,
    /// It was deleted.
    pub gone: bool,
    /// The transaction that changed it last.
    pub sync_tid: u32,
    /// The transaction that changed last what is needed to read its data.
    pub datasync_tid: u32,
    /// What is particular to its type.
    pub body: Body,
}

/// An inode in use.
pub struct Inode {
    /// Its number.
    pub ino: u32,
    /// Its type.
    pub file_type: FileType,
    /// References by lookup.
    pub lookups: AtomicU64,
    /// References by open.
    pub opens: AtomicU64,
    /// A directory's parent.
    pub parent: AtomicU64,
    /// What changes.
    pub state: RwLock<State>,
}

impl State {
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
        (self.size / crate::format::BLOCK as u64) as u32
    }

    fn flags(&self) -> u16 {
        match &self.body {
            Body::Dir { indexed: true } => FLAG_INDEXED,
            Body::Symlink(target) if target.len() <= INLINE_TARGET_MAX => FLAG_INLINE_TARGET,
            _ => 0,
        }
    }
}

impl Inode {
    /// An inode with this state, not referenced.
    pub fn new(ino: u32, file_type: FileType, parent: u32, state: State) -> Arc<Self> {
        Arc::new(Self {
            ino,
            file_type,
            lookups: AtomicU64::new(0),
            opens: AtomicU64::new(0),
            parent: AtomicU64::new(u64::from(parent)),
            state: RwLock::new(state),
        })
    }

    /// Reads an inode whose number is in use.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn load<D: BlockPort>(core: &Core<D>, ino: u32) -> Result<Arc<Self>> {
        let corrupt = |what: &str| Error::Corrupt(format!("inode {ino}: {what}"));
        let (lba, at) = core.layout.inode_place(ino);
        let block = core.block(lba, Kind::Inodes)?;
        let disk = DiskInode::decode(&block[at..at + INODE_BYTES], ino)
            .map_err(|error| corrupt(&error.to_string()))?;
        let file_type = file_type(disk.mode.get()).ok_or_else(|| corrupt("it has an unknown type"))?;
        let inline_target = disk.flags.get() & FLAG_INLINE_TARGET != 0;
        let extents = if inline_target { Extents::default() } else { Extents::load(core, &disk.root, ino)? };
        let size = disk.size.get();
        let body = match file_type {
            FileType::Regular if size > crate::file::FILE_BYTES_MAX => return Err(corrupt("it is too long")),
            FileType::Regular => Body::File(FileBody::default()),
            FileType::Directory => {
                if size == 0 || !size.is_multiple_of(crate::format::BLOCK as u64) || size >> 44 != 0 {
                    return Err(corrupt("a directory cannot have this size"));
                }
                Body::Dir { indexed: disk.flags.get() & FLAG_INDEXED != 0 }
            }
            FileType::Symlink if inline_target => {
                let target =
                    disk.root.get(..size as usize).filter(|target| target.len() <= INLINE_TARGET_MAX);
                Body::Symlink(target.ok_or_else(|| corrupt("its target is too long"))?.to_vec())
            }
            FileType::Symlink => {
                let long = corrupt("its target has no block or is too long");
                let crate::extent::Mapped::At { lba, .. } = extents.map(0) else { return Err(long) };
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
        let state = State {
            mode: disk.mode.get(),
            uid: disk.uid.get(),
            gid: disk.gid.get(),
            nlink: disk.nlink.get(),
            size,
            size_on_disk: size,
            atime: disk.atime.get(),
            mtime: disk.mtime.get(),
            ctime: disk.ctime.get(),
            generation: disk.generation.get(),
            rdev: disk.rdev.get(),
            blocks: disk.blocks.get(),
            extents,
            xattrs,
            orphan: false,
            unnamed: false,
            gone: false,
            sync_tid: 0,
            datasync_tid: 0,
            body,
        };
        Ok(Self::new(ino, file_type, parent, state))
    }

    /// Whether anybody holds it.
    pub fn referenced(&self) -> bool {
        self.ino == ROOT_INO
            || self.lookups.load(Ordering::Acquire) > 0
            || self.opens.load(Ordering::Acquire) > 0
    }

    /// Its attributes.
    pub fn attr(&self, state: &State) -> Attr {
        let reserved = match &state.body {
            Body::File(file) => file.unmapped,
            _ => 0,
        };
        let time = |ns| TimeSpec { ns };
        Attr {
            ino: Ino(u64::from(self.ino)),
            generation: state.generation,
            file_type: self.file_type,
            mode: state.mode & 0o7777,
            nlink: state.nlink,
            uid: state.uid,
            gid: state.gid,
            rdev: state.rdev,
            size: state.size,
            blocks: (u64::from(state.blocks) + u64::from(reserved)) * 8,
            atime: time(state.atime),
            mtime: time(state.mtime),
            ctime: time(state.ctime),
        }
    }

    /// Writes the inode, with its extent blocks, into the handle's transaction. `datasync`: what changed is needed to read its data.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Corrupt`], [`Error::Io`].
    pub fn write<D: BlockPort>(
        &self,
        handle: &mut Handle<'_, D>,
        state: &mut State,
        datasync: bool,
    ) -> Result<()> {
        let mut root = [0; ROOT_BYTES];
        match &state.body {
            Body::Symlink(target) if target.len() <= INLINE_TARGET_MAX => {
                root[..target.len()].copy_from_slice(target);
            }
            Body::Special => write_node(&mut root, ROOT_EXTENTS, 0, &[]),
            _ => {
                let goal = state.extents.goal(u32::MAX).unwrap_or_else(|| handle.core.groups.goal(self.ino));
                let (bytes, grown) = state.extents.write(handle, goal)?;
                root = bytes;
                state.blocks = (i64::from(state.blocks) + grown) as u32;
            }
        }
        let mut disk = DiskInode::new_zeroed();
        disk.mode = state.mode.into();
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
        let (lba, at) = handle.core.layout.inode_place(self.ino);
        handle.modify(lba, Kind::Inodes, |block| {
            let slot = &mut block[at..at + INODE_BYTES];
            // The list of orphans is kept there, by those who change it.
            if let Ok(before) = DiskInode::decode(slot, self.ino) {
                disk.next_orphan = before.next_orphan;
            }
            slot.copy_from_slice(&disk.encode(self.ino));
        })?;
        state.sync_tid = handle.tid;
        if datasync {
            state.datasync_tid = handle.tid;
        }
        Ok(())
    }
}
