//! What is on the device behind the superblock: the place of the log, the log, and pages, each of data, of
//! pointers, of a directory, of inodes. docs/format/pmfslike.md describes the bits.

use amphi_direct_access::{Layout as _, PAGE};
pub use amphi_direct_access::{TYPES, valid_word};
use zerocopy::byteorder::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What a superblock starts with.
pub const MAGIC: [u8; 8] = *b"AMPHPMFS";
/// Pages of the log: the most that one change needs are a tenth of the fewest.
pub const LOG_PAGES: std::ops::RangeInclusive<u64> = 16..=1024;
/// Bytes of an entry of the log.
pub const ENTRY: u64 = 64;
/// Bytes that an entry of the log keeps.
pub const ENTRY_DATA: usize = 48;
/// Bytes of an inode (PMFS §3: a line never holds parts of two).
pub const INODE: u64 = 128;
/// Inodes of a page.
pub const INODES_PER_PAGE: u64 = PAGE / INODE;
/// Pointers of a page, as a power of two.
pub const FAN_BITS: u64 = 9;
/// Pointers of a page.
pub const FAN: u64 = 1 << FAN_BITS;
/// Most levels of pages of pointers.
pub const HEIGHT_MAX: u64 = 4;
/// Where page 1 says where the log begins, as [`log_word`] has it.
pub const LOG_AT: u64 = PAGE;
/// Where page 1 has the inode of the table of inodes.
pub const TABLE_AT: u64 = PAGE + INODE;

/// Where things are.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub pages: u64,
    pub inodes: u64,
    pub log_pages: u64,
}

impl Layout {
    /// Entries of the log.
    pub const fn log_entries(&self) -> u64 {
        self.log_pages * (PAGE / ENTRY)
    }

    /// Address of an entry of the log.
    pub const fn log_entry(&self, index: u64) -> u64 {
        2 * PAGE + index * ENTRY
    }

    /// Whether bytes are such as a change may change: of pages without a fixed place, or of the table's
    /// inode.
    pub fn changes(&self, at: u64, bytes: u64) -> bool {
        let Some(end) = at.checked_add(bytes) else { return false };
        let table = at >= TABLE_AT && end <= TABLE_AT + INODE;
        table || at >= self.data() * PAGE && end <= self.pages * PAGE
    }
}

impl amphi_direct_access::Layout for Layout {
    fn of(pages: u64, inodes: u64, log_pages: u64) -> Option<Self> {
        let fits = LOG_PAGES.contains(&log_pages) && inodes < pages * INODES_PER_PAGE;
        fits.then_some(Self { pages, inodes, log_pages })
    }

    fn numbers(&self) -> (u64, u64, u64) {
        (self.pages, self.inodes, self.log_pages)
    }

    fn data(&self) -> u64 {
        2 + self.log_pages
    }
}

/// An inode, also that of the table of inodes, of which `root` and `size` say something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Record {
    /// 0: free. Else 1, the code of its type, its generation: see [`valid_word`].
    pub valid: U64,
    /// Where its pages are, as [`root_word`] has it.
    pub root: U64,
    pub size: U64,
    pub mtime: I64,
    /// [`SAME_TIME`]: as `mtime`, so that a write changes one word.
    pub ctime: I64,
    pub nlink: U32,
    pub mode: U16,
    /// [`BEHIND_END`].
    pub flags: U16,
    pub uid: U32,
    pub gid: U32,
    pub atime: I64,
    /// Page of extended attributes, and how long they are in its upper 16 bits; 0: there are none.
    pub attributes: U64,
    /// Device number of a device file.
    pub rdev: U32,
    /// CRC-32C of the inode's number, `valid` and `rdev`.
    pub crc: U32,
    pub zero: [u8; 48],
}
const _: () = assert!(size_of::<Record>() as u64 == INODE);

/// A time of change that is that of modification.
pub const SAME_TIME: i64 = i64::MIN;
/// Flag of an inode: there are pages behind its end (PMFS has `EOFBLOCKS`).
pub const BEHIND_END: u16 = 1;

/// The checksum of an inode's fixed part.
pub fn record_checksum(ino: u64, valid: u64, rdev: u32) -> u32 {
    let crc = crc32c::crc32c_append(crc32c::crc32c(&ino.to_le_bytes()), &valid.to_le_bytes());
    crc32c::crc32c_append(crc, &rdev.to_le_bytes())
}

/// The word that says where a tree of `height` levels of pages of pointers has its root. Without levels it is
/// the only block's page.
pub const fn root_word(page: u64, height: u64) -> u64 {
    page | height << 56
}

/// Page and height of such a word.
pub const fn root_of(word: u64) -> (u64, u64) {
    (word & ((1 << 56) - 1), word >> 56)
}

/// The start of a directory's entry; the name is behind it. Entries begin at multiples of 8 and never cross a
/// page.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Dentry {
    /// The inode that it names; 0: none.
    pub ino: U64,
    /// Bytes to the next entry, or to the end of the page.
    pub len: U16,
    pub name_bytes: u8,
    /// Code of the type of what it names.
    pub code: u8,
}
/// Bytes of an entry in front of its name.
pub const DENTRY: usize = 12;
const _: () = assert!(size_of::<Dentry>() == DENTRY);

/// Bytes that an entry with a name of so many bytes takes.
pub const fn dentry_bytes(name_bytes: usize) -> u16 {
    ((DENTRY + name_bytes).next_multiple_of(8)) as u16
}

/// Entry of the log: bytes as they were before a change.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct LogEntry {
    /// CRC-32C of the entry with this field 0.
    pub crc: U32,
    /// The lap in which it was written: what is of another lap says nothing (PMFS §3.2: `gen_id`).
    pub generation: U32,
    /// Where the bytes are; the upper two bytes are their number and [`FIRST`] or [`COMMIT`].
    pub at: U64,
    pub data: [u8; ENTRY_DATA],
}
const _: () = assert!(size_of::<LogEntry>() as u64 == ENTRY);

/// The first entry of a change.
pub const FIRST: u8 = 1;
/// The last: the change counts.
pub const COMMIT: u8 = 2;

impl LogEntry {
    /// One, with its checksum.
    pub fn new(generation: u32, kind: u8, at: u64, bytes: &[u8]) -> Self {
        let mut data = [0; ENTRY_DATA];
        data[..bytes.len()].copy_from_slice(bytes);
        let at = at | (bytes.len() as u64) << 48 | u64::from(kind) << 56;
        let mut entry = Self { crc: 0.into(), generation: generation.into(), at: at.into(), data };
        entry.crc = crc32c::crc32c(entry.as_bytes()).into();
        entry
    }

    /// Whether it is one of a lap.
    pub fn is_of(&self, generation: u32) -> bool {
        self.generation.get() == generation
            && self.crc.get() == crc32c::crc32c(Self { crc: 0.into(), ..*self }.as_bytes())
    }

    /// [`FIRST`], [`COMMIT`], or none of them.
    pub const fn kind(&self) -> u8 {
        (self.at.get() >> 56) as u8
    }

    /// Where bytes were, and which.
    pub fn bytes(&self) -> (u64, &[u8]) {
        let at = self.at.get();
        (at & ((1 << 48) - 1), &self.data[..ENTRY_DATA.min((at >> 48 & 0xff) as usize)])
    }
}

/// The word that says at which entry the log begins, and in which lap.
pub const fn log_word(index: u64, generation: u32) -> u64 {
    index | (generation as u64) << 32
}
