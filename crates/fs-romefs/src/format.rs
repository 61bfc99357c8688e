//! What a RomeFS looks like on its device (`docs/format/romefs.md`).
//!
//! All metadata and the data logs are in the memory area (RO-1): superblock, bitmaps, inode table, leaf
//! table, metadata pages, journal, log pages, in this order. The block side holds data blocks and nothing
//! else. Numbers of blocks, pages and leaves are stored one higher, so that zero means "none".

mod journal;
mod layout;
mod superblock;

pub use journal::{
    JOURNAL_ALIGN, LaneHead, OP_ALIGN, OpHeader, OpKind, RecordHeader, RecordTail, header_crc, mark,
};
pub use layout::{Area, Layout, Map, Plan};
pub use superblock::{LABEL_BYTES, OPTION_BYTES, SuperState, Superblock};

use amphi_vfs::FileType;
use amphi_volume::TypeCodes;
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First bytes of every RomeFS.
pub const MAGIC: [u8; 8] = *b"AMPHIROM";
/// What it is called in sentences.
pub const TITLE: &str = "RomeFS";
/// Version of the format.
pub const VERSION: u32 = 1;
/// Bytes of a page of the memory area.
pub const PAGE: usize = 4096;
/// Bytes of a cache line.
pub const LINE: usize = 64;
/// Smallest and largest data block in bytes. The block's size is the write splitting threshold (RO-3).
pub const BLOCK_BYTES_MIN: u64 = 4096;
/// See [`BLOCK_BYTES_MIN`].
pub const BLOCK_BYTES_MAX: u64 = 1 << 20;
/// The paper's.
pub const BLOCK_BYTES_DEFAULT: u64 = 64 << 10;

/// Where a copy of the superblock is in page 0: it is read where the superblock is damaged, as it is when a
/// power loss tears the store that changes it. File systems made before there was one have zeros there.
pub const SUPER_COPY_AT: u64 = 256;
/// Where the superblock's changing part is in page 0.
pub const SUPER_STATE_AT: u64 = 512;
/// Where the number of the last checkpointed transaction is in page 0.
pub const CHECKPOINT_AT: u64 = 1024;
/// Where the heads of the journal's lanes are in page 0, a line for each.
pub const HEADS_AT: u64 = 2048;
/// Most lanes of the journal.
pub const LANES_MAX: u32 = 32;

/// Bytes of an inode.
pub const INODE_BYTES: u64 = 256;
/// Bytes of an inode without its slots.
pub const INODE_HEAD_BYTES: usize = 128;
/// Slots in an inode.
pub const INLINE_SLOTS: u64 = 8;
/// Longest target of a symbolic link that is kept in the inode.
pub const INLINE_TARGET_BYTES: usize = 128;

/// Slots of a mapping page.
pub const PAGE_SLOTS: u64 = (PAGE / size_of::<Slot>()) as u64;
/// Pages that a page above the lowest level points to.
pub const PAGE_POINTERS: u64 = (PAGE / 4) as u64;
/// Most levels of mapping pages.
pub const DEPTH_MAX: u8 = 4;

/// Data logs of one data block (RO-5).
pub const LEAF_ENTRIES: usize = 16;
/// Bytes of a leaf in the leaf table.
pub const LEAF_BYTES: u64 = 256;

/// Bytes of a directory's unit: an entry takes one or more.
pub const UNIT: usize = 32;
/// Units of a directory's page.
pub const PAGE_UNITS: usize = PAGE / UNIT;

/// An inode: bytes 0 to 127; the slots of its first blocks, or a short target, follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct InodeHead {
    /// Permission bits, `0o7777`.
    pub mode: U16,
    /// [`TYPES`]; 0: the inode is free.
    pub kind: u8,
    /// Bit 0: made without a name, and has had none since.
    pub flags: u8,
    /// Names.
    pub nlink: U32,
    /// Owner.
    pub uid: U32,
    /// Group.
    pub gid: U32,
    /// Bytes.
    pub size: U64,
    /// Access time, ns since 1970.
    pub atime: I64,
    /// Modification time.
    pub mtime: I64,
    /// Change time.
    pub ctime: I64,
    /// Distinguishes successive files with one number.
    pub generation: U32,
    /// Device number of a device file.
    pub rdev: U32,
    /// A directory's parent.
    pub parent: U64,
    /// Data blocks; of a directory, pages.
    pub blocks: U64,
    /// Log pages.
    pub logs: U64,
    /// A directory's entries.
    pub entries: U64,
    /// Root of the mapping pages, one higher; of a long symbolic link, the page with its target.
    pub root: U32,
    /// Page of the extended attributes, one higher.
    pub attributes: U32,
    /// Levels of mapping pages, 0 to [`DEPTH_MAX`].
    pub depth: u8,
    /// Zero.
    pub reserved: [u8; 31],
}

const _: () = assert!(size_of::<InodeHead>() == INODE_HEAD_BYTES);

/// [`InodeHead::flags`]: made without a name, and has had none since.
pub const FLAG_UNNAMED: u8 = 1;

/// What a file has for one data block. A directory has one for each of its pages.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Slot {
    /// Number of the data block, one higher; of a directory, of the metadata page.
    pub block: U32,
    /// Bytes of the block that hold data; what follows reads as zeros.
    pub valid: U32,
    /// Number of the leaf with the block's data logs, one higher.
    pub leaf: U32,
    /// Zero.
    pub reserved: U32,
}

const _: () = assert!(size_of::<Slot>() == 16);

impl Slot {
    /// The data block, if there is one.
    #[must_use]
    pub fn block(self) -> Option<u32> {
        self.block.get().checked_sub(1)
    }

    /// The leaf, if there is one.
    #[must_use]
    pub fn leaf(self) -> Option<u32> {
        self.leaf.get().checked_sub(1)
    }

    /// Nothing is here.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }
}

/// A leaf's owner: bytes 0 to 63 of a leaf.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct LeafHead {
    /// Inode.
    pub ino: U64,
    /// Which of its data blocks.
    pub block: U64,
    /// Zero.
    pub reserved: [[u8; 16]; 3],
}

/// A data log as a leaf has it (RO-5).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct LogEntry {
    /// Number of the log page, one higher; 0: the entry is free. Bytes lie in the page where they lie in
    /// the file's page.
    pub page: U32,
    /// First byte in the data block.
    pub offset: U32,
    /// Bytes, within one page of the file.
    pub size: U32,
}

/// Where a leaf's entries begin.
pub const LEAF_ENTRIES_AT: u64 = size_of::<LeafHead>() as u64;

const _: () = assert!(LEAF_ENTRIES_AT as usize + LEAF_ENTRIES * size_of::<LogEntry>() == LEAF_BYTES as usize);

/// First bytes of a directory's entry; the name follows.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct EntryHead {
    /// Inode; 0: the unit is free.
    pub ino: U32,
    /// Bytes of the name.
    pub name_bytes: u8,
    /// [`TYPES`].
    pub kind: u8,
    /// Units that the entry takes.
    pub units: u8,
    /// Zero.
    pub reserved: u8,
}

/// Units that an entry with a name of `bytes` takes, 1 to 9.
#[must_use]
pub const fn entry_units(bytes: usize) -> usize {
    (size_of::<EntryHead>() + bytes).div_ceil(UNIT)
}

/// Types' numbers on the device.
pub const TYPES: TypeCodes = TypeCodes([
    FileType::Regular,
    FileType::Directory,
    FileType::Symlink,
    FileType::Fifo,
    FileType::Socket,
    FileType::CharDevice,
    FileType::BlockDevice,
]);
