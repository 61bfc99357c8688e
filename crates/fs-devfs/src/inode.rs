//! How an inode comes into device memory, from flash or from host memory (reverse caching, §4.4), and what it
//! is there.

use amphi_device::{BlockPort, MemoryArea};
use amphi_vfs::acl::Attributes;
use amphi_vfs::{Error, FileType, Ino, Result};
use zerocopy::{FromBytes, FromZeros};

use crate::away::Away;
use crate::controller::Controller;
use crate::format::{self, FILE_BYTES_MAX, PAGE, TYPES};
use crate::part::{Inode, Part, State};

/// Bytes of host memory that an inode takes which is away: as flash has it.
pub const HOST_INODE_BYTES: u64 = size_of::<format::Inode>() as u64;

/// Bytes of device memory that an inode takes while it is in use.
pub const fn bytes_in_use() -> u64 {
    size_of::<Inode>() as u64
}

impl<D: BlockPort + MemoryArea + 'static> Controller<D> {
    /// The part of an inode that has nothing.
    pub fn new_part(&self) -> Part {
        Part::new(&self.memory, bytes_in_use())
    }

    /// An inode as flash has it.
    ///
    /// # Errors
    /// [`Error::Stale`] if nobody has the number; [`Error::Corrupt`], [`Error::Io`].
    pub fn inode_on_flash(&self, ino: Ino) -> Result<format::Inode> {
        if ino.0 == 0 || ino.0 > self.layout.inodes {
            return Err(Error::Stale(ino));
        }
        let (page, at) = self.layout.inode(ino.0);
        let inode: format::Inode = self.meta.read(page, at)?;
        if inode.kind == 0 { Err(Error::Stale(ino)) } else { Ok(inode) }
    }

    /// Brings an inode into device memory: from host memory if it is there, else from flash.
    ///
    /// # Errors
    /// As [`inode_on_flash`](Self::inode_on_flash).
    pub fn load_inode(&self, ino: Ino) -> Result<Inode> {
        let kept = self.away.take(Away::Inode, ino, &self.counters);
        let inode = match kept.and_then(|bytes| format::Inode::read_from_bytes(&bytes).ok()) {
            Some(inode) => inode,
            None => self.inode_on_flash(ino)?,
        };
        let damaged = |what: &'static str| Error::corrupt("inode", ino.0, what);
        let file_type = TYPES.file_type(inode.kind).ok_or_else(|| damaged("its type is unknown"))?;
        if inode.levels > format::LEVELS_MAX {
            return Err(damaged("it has too many levels of pointers"));
        }
        for page in [inode.root.get(), inode.attributes.get(), inode.target.get()] {
            self.checked_page(page)?;
        }
        if (inode.levels == 0) != (inode.root.get() == 0) {
            return Err(damaged("its levels of pointers do not go with their root"));
        }
        let size = inode.size.get();
        let size_max = match file_type {
            FileType::Regular => FILE_BYTES_MAX,
            // Its pages are all different ones.
            _ => self.layout.pages * PAGE as u64,
        };
        if size > size_max || inode.blocks.get() > self.layout.pages {
            return Err(damaged("it is larger than it can be"));
        }
        let mut part = self.new_part();
        part.levels = inode.levels;
        part.root = inode.root.get();
        part.blocks = inode.blocks.get();
        (part.attributes, part.attributes_crc) = (inode.attributes.get(), inode.attributes_crc.get());
        (part.target_block, part.target_crc) = (inode.target.get(), inode.target_crc.get());
        if file_type == FileType::Symlink {
            if part.target_block == 0 || size == 0 || size >= PAGE as u64 {
                return Err(damaged("its target is damaged"));
            }
            part.target = self.checked_block(part.target_block, part.target_crc)?;
            part.target.truncate(size as usize);
            part.weigh();
        }
        let state = State {
            file_type,
            mode: inode.mode.get(),
            uid: inode.uid.get(),
            gid: inode.gid.get(),
            nlink: inode.nlink.get(),
            size,
            atime: inode.atime.get() as i64,
            mtime: inode.mtime.get() as i64,
            ctime: inode.ctime.get() as i64,
            generation: inode.generation.get(),
            rdev: inode.rdev.get(),
            attributes: None,
            orphan: false,
            unnamed: false,
            gone: false,
            atime_dirty: false,
            part,
        };
        Ok(amphi_names::Inode::new(ino, Ino(inode.parent.get()), state))
    }

    /// A block that has a checksum.
    fn checked_block(&self, block: u32, crc: u32) -> Result<Vec<u8>> {
        let mut bytes = vec![0; PAGE];
        self.media.read(block.into(), &mut bytes, amphi_device::Structure::Other)?;
        if crc32c::crc32c(&bytes) == crc {
            return Ok(bytes);
        }
        Err(Error::corrupt("block", u64::from(block), "it fails its checksum"))
    }

    /// An inode's extended attributes.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn load_attributes(&self, state: &State) -> Result<Attributes> {
        if state.part.attributes == 0 {
            return Ok(Attributes::new());
        }
        let bytes = self.checked_block(state.part.attributes, state.part.attributes_crc)?;
        postcard::take_from_bytes(&bytes).map(|(attributes, _)| attributes).map_err(|_| {
            Error::corrupt("attribute block", u64::from(state.part.attributes), "the list makes no sense")
        })
    }
}

/// A block of bytes, padded with zeros, and its checksum.
pub fn block_of(bytes: &[u8]) -> (Box<[u8; PAGE]>, u32) {
    let mut block = Box::new([0; PAGE]);
    block[..bytes.len()].copy_from_slice(bytes);
    let crc = crc32c::crc32c(&block[..]);
    (block, crc)
}

/// An inode as flash and host memory have it.
pub fn encode(parent: Ino, state: &State) -> format::Inode {
    let part = &state.part;
    format::Inode {
        kind: TYPES.code(state.file_type),
        levels: part.levels,
        mode: state.mode.into(),
        uid: state.uid.into(),
        gid: state.gid.into(),
        nlink: state.nlink.into(),
        size: state.size.into(),
        atime: (state.atime as u64).into(),
        mtime: (state.mtime as u64).into(),
        ctime: (state.ctime as u64).into(),
        parent: parent.0.into(),
        blocks: part.blocks.into(),
        generation: state.generation.into(),
        rdev: state.rdev.into(),
        root: part.root.into(),
        attributes: part.attributes.into(),
        target: part.target_block.into(),
        target_crc: part.target_crc.into(),
        attributes_crc: part.attributes_crc.into(),
        ..format::Inode::new_zeroed()
    }
}
