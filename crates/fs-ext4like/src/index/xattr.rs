//! Where extended attributes are kept: in the inode while they fit there, else in one block, as on ext4.

use amphi_device::BlockPort;
use amphi_vfs::acl::Attributes;
use amphi_vfs::{Error, Result};

use crate::base::Base;
use crate::format::{
    DiskInode, Layout, XATTR_INLINE_MAX, decode_xattr_block, decode_xattrs, encode_xattr_block, encode_xattrs,
};
use crate::journal::buffers::{Block, Kind};
use crate::journal::handle::Handle;

/// Where the attributes of one inode are.
#[derive(Default)]
pub struct Xattrs {
    /// Their block; 0: they are in the inode.
    block: u32,
    /// What is in the inode, as it is there.
    inline: Box<[u8]>,
}

impl Xattrs {
    /// What an inode on the device says.
    ///
    /// # Errors
    /// What is impossible.
    pub fn of_inode(disk: &DiskInode, layout: &Layout) -> std::result::Result<Self, &'static str> {
        let block = disk.xattr.get();
        if block != 0 {
            return if layout.is_data(block, 1) {
                Ok(Self { block, inline: Box::default() })
            } else {
                Err("its attributes are outside of the data area")
            };
        }
        let bytes = disk.xattrs.get(..usize::from(disk.xattr_bytes.get()));
        let sound = bytes.filter(|bytes| decode_xattrs(bytes).is_some());
        Ok(Self { block: 0, inline: sound.ok_or("its attributes are damaged")?.into() })
    }

    /// The block that holds them.
    pub const fn block(&self) -> Option<u32> {
        if self.block == 0 { None } else { Some(self.block) }
    }

    /// Puts the part that is in the inode there.
    pub fn put_into(&self, disk: &mut DiskInode) {
        disk.xattr = self.block.into();
        disk.xattrs[..self.inline.len()].copy_from_slice(&self.inline);
        disk.xattr_bytes = (self.inline.len() as u16).into();
    }

    /// Reads the attributes.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn load<D: BlockPort>(&self, base: &Base<D>) -> Result<Attributes> {
        if self.block == 0 {
            return decode_xattrs(&self.inline)
                .ok_or_else(|| Error::corrupt("inode", None, "the attributes in it make no sense"));
        }
        let lba = u64::from(self.block);
        let block = base.block(lba, Kind::Xattr)?;
        read_block(lba, &block)
    }

    /// Blocks that storing these attributes takes, of an inode that has `known`.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if all together do not fit one block, as on ext4.
    pub fn needs(attributes: &Attributes, known: Option<&Self>) -> Result<u64> {
        let in_block = matches!(Stored::of(attributes)?, Stored::InBlock(_));
        Ok(u64::from(in_block && known.is_none_or(|known| known.block == 0)))
    }
}

/// Contents in the cache are sealed when they are committed only.
fn read_block(lba: u64, block: &Block) -> Result<Attributes> {
    let mut block = *block;
    crate::format::seal_block(lba, &mut block);
    decode_xattr_block(lba, &block)
        .ok_or_else(|| Error::corrupt("block", lba, "the attributes in it make no sense"))
}

/// Attributes as they are stored.
enum Stored {
    InInode(Vec<u8>),
    InBlock(Box<Block>),
}

impl Stored {
    fn of(attributes: &Attributes) -> Result<Self> {
        let bytes = encode_xattrs(attributes);
        if bytes.len() <= XATTR_INLINE_MAX {
            return Ok(Self::InInode(bytes));
        }
        if attributes.iter().any(|(_, value)| value.len() > usize::from(u16::MAX)) {
            return Err(Error::NoSpace);
        }
        Ok(Self::InBlock(Box::new(encode_xattr_block(&bytes).ok_or(Error::NoSpace)?)))
    }
}

/// Stores an inode's attributes; a block that it takes has been reserved, and is counted in `blocks`. The
/// inode is written afterwards.
///
/// # Errors
/// [`Error::NoSpace`] as [`Xattrs::needs`]; [`Error::Corrupt`], [`Error::Io`].
pub fn store<D: BlockPort>(
    handle: &mut Handle<'_, D>,
    (xattrs, blocks): (&mut Xattrs, &mut u32),
    attributes: &Attributes,
    goal: u32,
) -> Result<()> {
    match (Stored::of(attributes)?, xattrs.block) {
        (Stored::InInode(bytes), _) => {
            free(handle, xattrs, blocks)?;
            xattrs.inline = bytes.into();
        }
        (Stored::InBlock(bytes), 0) => {
            let (block, _) = handle.base.groups.allocate(handle, goal, 1)?;
            handle.fill(u64::from(block), Kind::Xattr, |block| *block = *bytes)?;
            *xattrs = Xattrs { block, inline: Box::default() };
            *blocks += 1;
        }
        (Stored::InBlock(bytes), block) => {
            handle.modify(u64::from(block), Kind::Xattr, |block| *block = *bytes)?;
        }
    }
    Ok(())
}

/// Frees the block of attributes, if there is one.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn free<D: BlockPort>(handle: &mut Handle<'_, D>, xattrs: &mut Xattrs, blocks: &mut u32) -> Result<()> {
    let block = std::mem::take(&mut xattrs.block);
    if block != 0 {
        handle.base.groups.free_blocks(handle, block, 1, true)?;
        *blocks = blocks.saturating_sub(1);
    }
    Ok(())
}
