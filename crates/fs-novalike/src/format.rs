//! What is on the device behind the superblock: the journals' pointers, the journals, the table of inodes,
//! and pages, each of a log or of data. docs/format/novalike.md describes the bits.

use amphi_direct_access::PAGE;
pub use amphi_direct_access::{TYPES, valid_word};
use zerocopy::byteorder::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What a superblock starts with.
pub const MAGIC: [u8; 8] = *b"AMPHNOVA";
/// Most journals: their pointers fill a page.
pub const LANES_MAX: u64 = 64;
/// Entries of one journal; one stays free.
pub const JOURNAL_ENTRIES: u64 = PAGE / ENTRY;
/// Bytes of an entry, of a log and of a journal.
pub const ENTRY: u64 = 64;
/// Bytes of an inode in the table (NOVA §4.2: 128 B, so that none shares a line).
pub const INODE: u64 = 128;
/// Where a log page keeps the address of the next; entries lie before it.
pub const FOOTER: u64 = PAGE - ENTRY;

/// Where things are.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub pages: u64,
    pub inodes: u64,
    pub lanes: u64,
}

impl Layout {
    /// Address of a lane's pair of pointers: the first entry that may have to be undone, and the one behind
    /// the last.
    pub const fn pair(&self, lane: u64) -> u64 {
        PAGE + lane * ENTRY
    }

    /// Address of a journal's entry.
    pub const fn journal(&self, lane: u64, entry: u64) -> u64 {
        (2 + lane) * PAGE + entry * ENTRY
    }

    /// First page of the table of inodes.
    pub const fn table(&self) -> u64 {
        2 + self.lanes
    }

    /// Address of an inode.
    pub const fn inode(&self, ino: u64) -> u64 {
        self.table() * PAGE + ino * INODE
    }
}

impl amphi_direct_access::Layout for Layout {
    fn of(pages: u64, inodes: u64, lanes: u64) -> Option<Self> {
        let fits = (1..=LANES_MAX).contains(&lanes) && inodes < pages * PAGE / INODE;
        fits.then_some(Self { pages, inodes, lanes })
    }

    fn numbers(&self) -> (u64, u64, u64) {
        (self.pages, self.inodes, self.lanes)
    }

    fn data(&self) -> u64 {
        self.table() + ((self.inodes + 1) * INODE).div_ceil(PAGE)
    }
}

/// An inode in the table. Its log says how its attributes have changed since it was made.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct InodeHead {
    /// 0: free. Else 1, the code of its type, its generation: see [`valid_word`].
    pub valid: U64,
    /// Address of the log's first page.
    pub head: U64,
    /// Address behind the log's last entry; 0: there is no log.
    pub tail: U64,
    /// Device number of a device file.
    pub rdev: U32,
    /// CRC-32C of the inode's number and `rdev`.
    pub crc: U32,
    pub zero: [u8; 32],
    /// Attributes that it was made with.
    pub first: Attr,
}
const _: () = assert!(size_of::<InodeHead>() as u64 == INODE);

/// Offset of [`InodeHead::head`].
pub const HEAD_AT: u64 = 8;
/// Offset of [`InodeHead::tail`].
pub const TAIL_AT: u64 = 16;

/// What every entry of a log starts with.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct EntryHead {
    /// [`ATTR`], [`WRITE`], [`DENTRY`] or [`NEXT_PAGE`].
    pub kind: u8,
    pub flags: u8,
    /// Entries of 64 B that it takes.
    pub slots: u8,
    pub zero: u8,
    /// CRC-32C of the inode's number and the entry, with this field 0 and [`INVALID`] not set.
    pub crc: U32,
}
const _: () = assert!(size_of::<EntryHead>() == 8);

/// All attributes, and where extended ones are.
pub const ATTR: u8 = 1;
/// A run of blocks that got new pages.
pub const WRITE: u8 = 2;
/// A directory's entry that was made or taken away.
pub const DENTRY: u8 = 3;
/// Nothing: the log goes on in the next page. Only its head is stored.
pub const NEXT_PAGE: u8 = 4;

/// Flag of [`ATTR`]: the file was cut, blocks behind its end are no more.
pub const CUT: u8 = 1;
/// Flag of [`WRITE`]: it belongs to the making of the inode, whose attributes it leaves alone.
pub const MADE: u8 = 1;
/// Flag of [`DENTRY`], set in place: the entry was taken away, or names another inode now (NOVA §4.6).
pub const INVALID: u8 = 1;

/// Entry of the kind [`ATTR`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Attr {
    pub head: EntryHead,
    pub mode: U16,
    /// Bytes of extended attributes.
    pub attributes_bytes: U16,
    pub nlink: U32,
    pub uid: U32,
    pub gid: U32,
    pub size: U64,
    pub atime: I64,
    pub mtime: I64,
    pub ctime: I64,
    /// Page of extended attributes; 0: there are none.
    pub attributes_page: U32,
    /// A directory's parent.
    pub parent: U32,
}
const _: () = assert!(size_of::<Attr>() as u64 == ENTRY);

/// Entry of the kind [`WRITE`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Write {
    pub head: EntryHead,
    /// First block of the file.
    pub block: U64,
    /// First page; 0: the blocks are a hole.
    pub page: U64,
    pub count: U32,
    /// Permission bits, which a write may take away.
    pub mode: U16,
    pub zero: [u8; 2],
    /// The file's size.
    pub size: U64,
    /// Times of modification and change.
    pub mtime: I64,
    pub zeros: [u8; 16],
}
const _: () = assert!(size_of::<Write>() as u64 == ENTRY);

/// The start of an entry of the kind [`DENTRY`]; the name is behind it.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Dentry {
    pub head: EntryHead,
    /// The inode that it names; 0: the name was taken away.
    pub ino: U64,
    /// The directory's times of modification and change.
    pub mtime: I64,
    /// Where a listing goes on with it; higher than those of the directory before it.
    pub cookie: U64,
    /// The directory's links.
    pub nlink: U32,
    /// Code of the type of what it names.
    pub code: u8,
    pub name_bytes: u8,
    pub zero: [u8; 2],
}
const _: () = assert!(size_of::<Dentry>() == 40);

/// Entry of a journal: four words of 8 B as they were (NOVA §4.5). Address 0: there is none.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Undo {
    pub at: [U64; 4],
    pub old: [U64; 4],
}
const _: () = assert!(size_of::<Undo>() as u64 == ENTRY);

/// The checksum of an entry of an inode's log: of all of `bytes`, but for the checksum and for what is set in
/// place.
pub fn checksum(ino: u64, bytes: &[u8]) -> u32 {
    let mut head = [0; 8];
    head.copy_from_slice(&bytes[..8]);
    head[4..].fill(0);
    if head[0] == DENTRY {
        head[1] &= !INVALID;
    }
    let crc = crc32c::crc32c_append(crc32c::crc32c(&ino.to_le_bytes()), &head);
    crc32c::crc32c_append(crc, &bytes[8..])
}

/// Fills in the checksum of an entry.
pub fn seal(ino: u64, bytes: &mut [u8]) {
    let crc = checksum(ino, bytes);
    bytes[4..8].copy_from_slice(&crc.to_le_bytes());
}

/// The checksum of an inode's fixed part.
pub fn head_checksum(ino: u64, rdev: u32) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&ino.to_le_bytes()), &rdev.to_le_bytes())
}

/// Entries of 64 B that a name takes.
pub const fn dentry_slots(name_bytes: usize) -> u64 {
    ((size_of::<Dentry>() + name_bytes) as u64).div_ceil(ENTRY)
}
