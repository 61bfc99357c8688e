//! What the file system puts on the device: superblock, group descriptors, inodes, extents, directory blocks,
//! attribute blocks, journal blocks. Little-endian, sizes fixed at compile time, versioned by the superblock,
//! each structure with a CRC-32C. The byte diagrams are in docs/format/ext4like.md. This module and those
//! below it import no sibling.

mod directory;
mod journal;
mod superblock;
mod xattr;

pub use directory::{
    DIR_TAIL, DIRENT_HEADER, DX_ENTRIES_AT, DX_NODE_ENTRIES_AT, DX_NODE_ENTRIES_MAX, DX_ROOT_ENTRIES_MAX,
    DirentHeader, DxCount, DxEntry, DxRootInfo, dirent_bytes, name_hash,
};
pub use journal::{
    COMMIT, CommitRecord, DESCRIPTOR, DESCRIPTOR_TAGS, JOURNAL_MAGIC, JournalHeader, JournalSuper,
    JournalTag, REVOKE, REVOKE_BLOCKS, SUPER, TAG_ESCAPED, journal_block_crc,
};
pub use superblock::{Layout, Superblock};
pub use xattr::{XATTR_INLINE_MAX, decode_xattr_block, decode_xattrs, encode_xattr_block, encode_xattrs};

use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes per block.
pub const BLOCK: usize = 4096;
/// Largest file in bytes.
pub const FILE_BYTES_MAX: u64 = (u32::MAX as u64 - 1) * BLOCK as u64;
/// Blocks, and most inodes, per group: as many as one bitmap block has bits.
pub const GROUP_BLOCKS: u32 = (BLOCK * 8) as u32;
/// Bytes per inode.
pub const INODE_BYTES: usize = 256;
/// Inodes per block of an inode table.
pub const INODES_PER_BLOCK: u32 = (BLOCK / INODE_BYTES) as u32;
/// Bytes of an inode that hold the root of its extent tree, or a short symlink's target.
pub const ROOT_BYTES: usize = 60;
/// Longest symlink target kept in the inode.
pub const INLINE_TARGET_MAX: usize = ROOT_BYTES - 1;
/// Extents, or child pointers, in the inode.
pub const ROOT_EXTENTS: usize = (ROOT_BYTES - size_of::<ExtentHeader>()) / size_of::<Extent>();
/// Extents, or child pointers, in a block; its last four bytes are the checksum.
pub const BLOCK_EXTENTS: usize = (BLOCK - size_of::<ExtentHeader>() - 4) / size_of::<Extent>();
/// Longest extent in blocks.
pub const EXTENT_BLOCKS_MAX: u32 = 32_768;
/// First bytes of an extent header.
pub const EXTENT_MAGIC: u16 = 0xF30A;
/// Most levels of extent blocks below an inode, as ext4 has it.
pub const EXTENT_DEPTH_MAX: u16 = 5;
/// Group descriptors per block.
pub const DESCRIPTORS_PER_BLOCK: u32 = (BLOCK / size_of::<GroupDescriptor>()) as u32;
/// Longest label in bytes.
pub const LABEL_BYTES: usize = 32;
/// First bytes of block 0.
pub const MAGIC: [u8; 8] = *b"AMPHI-E4";
/// What it is called in sentences.
pub const TITLE: &str = "Ext4-like";
/// Version of everything in this module.
pub const VERSION: u32 = 1;
/// The root directory's inode number. Number 0 is never used.
pub const ROOT_INO: u32 = 1;
/// First inode number for files; those between it and the root's are reserved, as on ext4.
pub const FIRST_INO: u32 = 11;
/// Fewest blocks the file system can be made on.
pub const BLOCKS_MIN: u64 = 512;

/// The directory has an index of hashes ([`DxRootInfo`]).
pub const FLAG_INDEXED: u16 = 1;
/// The symlink's target is in the inode.
pub const FLAG_INLINE_TARGET: u16 = 2;

/// File types within `mode`, as `st_mode` has them.
pub mod mode {
    /// Mask of the type bits.
    pub const TYPE: u16 = 0o170_000;
    /// Directory.
    pub const DIRECTORY: u16 = 0o040_000;
}

/// An inode.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DiskInode {
    /// File type and permission bits, as `st_mode` has them; 0: a free inode.
    pub mode: U16,
    /// [`FLAG_INDEXED`], [`FLAG_INLINE_TARGET`].
    pub flags: U16,
    /// Number of names.
    pub nlink: U32,
    /// Owner.
    pub uid: U32,
    /// Group.
    pub gid: U32,
    /// Length in bytes.
    pub size: U64,
    /// Access time, ns since 1970.
    pub atime: I64,
    /// Modification time, ns since 1970.
    pub mtime: I64,
    /// Change time, ns since 1970.
    pub ctime: I64,
    /// Blocks allocated: data, extent blocks, attributes.
    pub blocks: U32,
    /// Distinguishes successive files with one number.
    pub generation: U32,
    /// Device number of a device file.
    pub rdev: U32,
    /// Block of extended attributes that do not fit here; 0: none.
    pub xattr: U32,
    /// The next inode in the list of orphans that the superblock starts; 0: none.
    pub next_orphan: U32,
    /// Root of the extent tree: a header and [`ROOT_EXTENTS`] entries; or a symlink's target.
    pub root: [u8; ROOT_BYTES],
    /// Bytes in use of `xattrs`.
    pub xattr_bytes: U16,
    /// Zero.
    pub reserved: [u8; 26],
    /// Extended attributes.
    pub xattrs: [u8; XATTR_INLINE_MAX],
    /// CRC-32C of the inode number and all before.
    pub crc: U32,
}

const _: () = assert!(size_of::<DiskInode>() == INODE_BYTES, "an inode takes 256 bytes");

impl DiskInode {
    fn checksum(&self, ino: u32) -> u32 {
        let bytes = self.as_bytes();
        crc32c::crc32c_append(crc32c::crc32c(&ino.to_le_bytes()), &bytes[..INODE_BYTES - 4])
    }

    /// The bytes for the inode table, with their checksum.
    #[must_use]
    pub fn encode(mut self, ino: u32) -> [u8; INODE_BYTES] {
        self.crc = self.checksum(ino).into();
        let mut bytes = [0; INODE_BYTES];
        bytes.copy_from_slice(self.as_bytes());
        bytes
    }

    /// Reads an inode and checks its checksum.
    ///
    /// # Errors
    /// [`FormatError::Checksum`].
    pub fn decode(bytes: &[u8], ino: u32) -> Result<Self, FormatError> {
        let (inode, _) = Self::read_from_prefix(bytes).map_err(|_| FormatError::Checksum("inode"))?;
        if inode.crc.get() == inode.checksum(ino) { Ok(inode) } else { Err(FormatError::Checksum("inode")) }
    }
}

/// What starts the root of an extent tree and every extent block.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ExtentHeader {
    /// [`EXTENT_MAGIC`].
    pub magic: U16,
    /// Entries in use.
    pub entries: U16,
    /// Entries that there is room for.
    pub max: U16,
    /// Levels below; 0: the entries are extents.
    pub depth: U16,
    /// Zero.
    pub reserved: U32,
}

const _: () = assert!(size_of::<ExtentHeader>() == 12, "as ext4 has it");

/// A run of blocks of a file, or a pointer to a block of such.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Extent {
    /// First block of the file that the run, or the child, holds.
    pub file_block: U32,
    /// Length in blocks; 0 in a pointer.
    pub len: U16,
    /// 1: the blocks are reserved and read as zeros.
    pub unwritten: U16,
    /// First block on the device, or the child's block.
    pub start: U32,
}

const _: () = assert!(size_of::<Extent>() == 12, "as ext4 has it");

/// A group's descriptor.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct GroupDescriptor {
    /// CRC-32C of the block bitmap.
    pub block_bitmap_crc: U32,
    /// CRC-32C of the inode bitmap.
    pub inode_bitmap_crc: U32,
    /// Free blocks.
    pub blocks_free: U32,
    /// Free inodes.
    pub inodes_free: U32,
    /// Directories.
    pub directories: U32,
    /// Zero.
    pub reserved: [u8; 40],
    /// CRC-32C of the group's number and all before.
    pub crc: U32,
}

const _: () = assert!(size_of::<GroupDescriptor>() == 64, "64 to a block");

impl GroupDescriptor {
    fn checksum(&self, group: u32) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&group.to_le_bytes()), &self.as_bytes()[..60])
    }

    /// The bytes for the table, with their checksum.
    #[must_use]
    pub fn encode(mut self, group: u32) -> [u8; 64] {
        self.crc = self.checksum(group).into();
        let mut bytes = [0; 64];
        bytes.copy_from_slice(self.as_bytes());
        bytes
    }

    /// Reads a descriptor and checks its checksum.
    ///
    /// # Errors
    /// [`FormatError::Checksum`].
    pub fn decode(bytes: &[u8], group: u32) -> Result<Self, FormatError> {
        let broken = FormatError::Checksum("group descriptor");
        let (descriptor, _) = Self::read_from_prefix(bytes).map_err(|_| broken.clone())?;
        if descriptor.crc.get() == descriptor.checksum(group) { Ok(descriptor) } else { Err(broken) }
    }
}

/// The checksum in the last four bytes of directory and extent blocks: of the block's number and all before.
#[must_use]
pub fn block_crc(lba: u64, block: &[u8; BLOCK]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&lba.to_le_bytes()), &block[..BLOCK - 4])
}

/// Puts a block's checksum where it belongs.
pub fn seal_block(lba: u64, block: &mut [u8; BLOCK]) {
    let crc = block_crc(lba, block);
    block[BLOCK - 4..].copy_from_slice(&crc.to_le_bytes());
}

/// Whether a block's checksum is right.
#[must_use]
pub fn is_sealed(lba: u64, block: &[u8; BLOCK]) -> bool {
    block[BLOCK - 4..] == block_crc(lba, block).to_le_bytes()
}

/// Why bytes are not what they should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// A checksum is wrong.
    #[error("the checksum of the {0} is wrong")]
    Checksum(&'static str),
}
