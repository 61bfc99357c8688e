//! What ByteFS puts on the device: superblock, bitmaps, inodes in two 64 B halves, 16 B extents, extent
//! nodes, directory entries, orphan slots, journal records. Little-endian, sizes fixed at compile time, each
//! structure versioned by the superblock and checksummed with CRC-32C. The byte diagrams are in
//! docs/format/bytefs.md. This module and those below it import no sibling.

mod journal;
mod layout;
mod superblock;

pub use journal::{
    JOURNAL_MAGIC, JOURNAL_SLOTS, JournalHeader, JournalSlot, RECORD_PAGES, RECORD_TARGETS, RECORD_UPDATES,
    RedoUpdate, record_descriptors,
};
pub use layout::{AG_PAGES, Layout, ORPHAN_PAGES};
pub use superblock::{OPTION_BYTES, SuperState, Superblock};

use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes per page, block and flash page.
pub const PAGE: usize = 4096;
/// Bytes per line: the unit of a byte-port update.
pub const LINE: usize = 64;
/// Lines per page.
pub const LINES_PER_PAGE: usize = PAGE / LINE;
/// Bits, and so blocks or inodes, in one 64 B bitmap group (BY-11).
pub const GROUP_BITS: u64 = (LINE * 8) as u64;
/// Bytes per inode (BY-9).
pub const INODE_BYTES: usize = 128;
/// Inodes per page of the inode table.
pub const INODES_PER_PAGE: usize = PAGE / INODE_BYTES;
/// Extents, or child pointers, that fit in the inode itself.
pub const ROOT_ENTRIES: usize = 3;
/// Extents, or child pointers, in one extent node page.
pub const NODE_ENTRIES: usize = (PAGE - size_of::<NodeHeader>()) / size_of::<Extent>();
/// Longest symlink target kept in the inode.
pub const INLINE_TARGET_MAX: usize = ROOT_ENTRIES * size_of::<Extent>();
/// Bytes of a directory entry before the name (BY-10).
pub const DIRENT_HEADER: usize = size_of::<DirentHeader>();
/// Orphan slots per line.
pub const ORPHANS_PER_LINE: usize = LINE / 4;
/// Longest label in bytes.
pub const LABEL_BYTES: usize = 32;

/// First bytes of page 0.
pub const MAGIC: [u8; 8] = *b"AMPHI-BY";
/// Version of everything in this module.
pub const VERSION: u32 = 3;
/// First bytes of an extent node.
pub const NODE_MAGIC: u32 = 0x5458_4542;
/// The root directory's inode number. Number 0 is never used.
pub const ROOT_INO: u32 = 1;
/// Byte offset, in page 0, of [`SuperState`].
pub const SUPER_STATE_OFFSET: usize = 256;
/// Fewest pages ByteFS can be made on.
pub const MIN_PAGES: u64 = 512;

/// The often-updated half of an inode: one line, written as one byte-port update (BY-9).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct InodeLower {
    /// Length in bytes.
    pub size: U64,
    /// Access time, ns since 1970.
    pub atime: I64,
    /// Modification time, ns since 1970.
    pub mtime: I64,
    /// Change time, ns since 1970.
    pub ctime: I64,
    /// Owner.
    pub uid: U32,
    /// Group.
    pub gid: U32,
    /// File type and permission bits, as `st_mode` has them.
    pub mode: U16,
    /// [`FLAG_INLINE_TARGET`].
    pub flags: U16,
    /// Number of names.
    pub nlink: U32,
    /// Pages allocated, extent nodes included.
    pub pages: U32,
    /// Distinguishes successive files with one number.
    pub generation: U32,
    /// Zero.
    pub reserved: U32,
    /// CRC-32C of the inode number and all before.
    pub crc: U32,
}

/// The symlink's target is in the inode's upper half.
pub const FLAG_INLINE_TARGET: u16 = 1;

/// The seldom-updated half of an inode: one line, holding the root of the extent tree (BY-12).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct InodeUpper {
    /// Levels of extent nodes below; 0: the entries are extents.
    pub depth: U16,
    /// Entries in use, or bytes of an inline target.
    pub count: U16,
    /// A directory's parent, a device file's number.
    pub parent_or_rdev: U32,
    /// Page of extended attributes, 0 for none.
    pub xattr: U32,
    /// CRC-32C of the inode number and all else in this half.
    pub crc: U32,
    /// Extents, child pointers, or the inline target.
    pub root: [Extent; ROOT_ENTRIES],
}

/// A run of blocks of a file; in an inner node a child pointer, whose `pages` is zero.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Extent {
    /// First page of the file that the run, or the child, holds.
    pub file_page: U64,
    /// First page on the device, or the child node's page.
    pub lba: U32,
    /// Length in pages; the top bit, [`UNWRITTEN`], says that they are reserved but hold nothing yet.
    pub pages: U32,
}

/// Marks an extent whose blocks are reserved and read as zeros.
pub const UNWRITTEN: u32 = 1 << 31;

impl Extent {
    /// The extent of `pages` (below 2³¹) pages.
    #[must_use]
    pub fn new(file_page: u64, lba: u32, pages: u32, unwritten: bool) -> Self {
        let flag = if unwritten { UNWRITTEN } else { 0 };
        Self { file_page: file_page.into(), lba: lba.into(), pages: (pages | flag).into() }
    }

    /// Length in pages.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.pages.get() & !UNWRITTEN
    }

    /// Whether it has no pages, as a child pointer has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether its blocks are reserved only.
    #[must_use]
    pub fn unwritten(&self) -> bool {
        self.pages.get() & UNWRITTEN != 0
    }

    /// Says that its blocks are written.
    pub fn mark_written(&mut self) {
        self.pages = self.len().into();
    }

    /// Changes the length, and nothing else.
    pub fn set_len(&mut self, pages: u32) {
        self.pages = (self.pages.get() & UNWRITTEN | pages).into();
    }

    /// First file page behind it.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.file_page.get().saturating_add(u64::from(self.len()))
    }
}

/// Start of an extent node page; [`NODE_ENTRIES`] entries follow.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct NodeHeader {
    /// [`NODE_MAGIC`].
    pub magic: U32,
    /// Levels of nodes below; 0: the entries are extents.
    pub depth: U16,
    /// Entries in use.
    pub count: U16,
    /// The inode it belongs to.
    pub ino: U32,
    /// CRC-32C of the header's other fields and the entries in use.
    pub crc: U32,
}

/// Start of a directory entry; the name follows. An entry takes whole lines and stays within one page
/// (BY-10).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct DirentHeader {
    /// The inode; 0: the space is free.
    pub ino: U32,
    /// File type: the `S_IFMT` bits of `st_mode`, shifted right by 12.
    pub file_type: u8,
    /// Lines that the entry takes, 1 to 64.
    pub lines: u8,
    /// Bytes of the name.
    pub name_bytes: U16,
}

/// Start of a page of extended attributes; the attributes follow, each an [`XattrEntry`], its name and its
/// value, without gaps.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct XattrHeader {
    /// [`XATTR_MAGIC`].
    pub magic: U32,
    /// Number of attributes.
    pub count: U16,
    /// Bytes in use, this header included.
    pub used: U16,
    /// The inode it belongs to.
    pub ino: U32,
    /// CRC-32C of the header's other fields and the bytes in use.
    pub crc: U32,
}

/// Start of one extended attribute.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct XattrEntry {
    /// Bytes of the name, 1 to 255.
    pub name_bytes: U16,
    /// Bytes of the value.
    pub value_bytes: U16,
}

/// First bytes of a page of extended attributes.
pub const XATTR_MAGIC: u32 = 0x5841_5942;

const _: () = assert!(size_of::<XattrHeader>() == 16);
const _: () = assert!(size_of::<XattrEntry>() == 4);
const _: () = assert!(size_of::<InodeLower>() == LINE);
const _: () = assert!(size_of::<InodeUpper>() == LINE);
const _: () = assert!(size_of::<Extent>() == 16);
const _: () = assert!(size_of::<NodeHeader>() == 16);
const _: () = assert!(size_of::<DirentHeader>() == 8);
const _: () = assert!(NODE_ENTRIES == 255);

/// `S_IFMT` and its values, as `st_mode` has them.
pub mod mode {
    /// Mask of the type bits.
    pub const TYPE: u16 = 0o170_000;
    /// Socket.
    pub const SOCKET: u16 = 0o140_000;
    /// Symbolic link.
    pub const SYMLINK: u16 = 0o120_000;
    /// Regular file.
    pub const REGULAR: u16 = 0o100_000;
    /// Block device.
    pub const BLOCK: u16 = 0o060_000;
    /// Directory.
    pub const DIRECTORY: u16 = 0o040_000;
    /// Character device.
    pub const CHAR: u16 = 0o020_000;
    /// Named pipe.
    pub const FIFO: u16 = 0o010_000;
}

/// Lines that an entry with a name of `name_bytes` takes: 1 (up to 56 B) to 5 (BY-10).
#[must_use]
pub const fn dirent_lines(name_bytes: usize) -> usize {
    (DIRENT_HEADER + name_bytes).div_ceil(LINE)
}

/// Why a structure read from the device was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// Page 0 does not start with [`MAGIC`].
    #[error("this is not a ByteFS file system")]
    NotByteFs,
    /// Made by another version.
    #[error("ByteFS format version {0}, but this program reads version {VERSION}")]
    Version(u32),
    /// A checksum does not match.
    #[error("{0} has a wrong checksum")]
    Checksum(&'static str),
    /// A field is out of its range.
    #[error("{0} has an impossible {1}")]
    Field(&'static str, &'static str),
}

fn inode_crc(ino: u32, parts: &[&[u8]]) -> u32 {
    let seed = crc32c::crc32c(&ino.to_le_bytes());
    parts.iter().fold(seed, |crc, part| crc32c::crc32c_append(crc, part))
}

impl InodeLower {
    /// Reads and checks the half of inode `ino`.
    ///
    /// # Errors
    /// A wrong checksum or an unknown file type.
    pub fn decode(bytes: &[u8], ino: u32) -> Result<Self, FormatError> {
        let (half, _) =
            Self::read_from_prefix(bytes).map_err(|_| FormatError::Field("an inode", "length"))?;
        if half.crc.get() != half.checksum(ino) {
            return Err(FormatError::Checksum("an inode's lower half"));
        }
        match half.mode.get() & mode::TYPE {
            mode::SOCKET
            | mode::SYMLINK
            | mode::REGULAR
            | mode::BLOCK
            | mode::DIRECTORY
            | mode::CHAR
            | mode::FIFO => Ok(half),
            _ => Err(FormatError::Field("an inode", "file type")),
        }
    }

    /// The line, with its checksum.
    #[must_use]
    pub fn encode(mut self, ino: u32) -> [u8; LINE] {
        self.crc = self.checksum(ino).into();
        zerocopy::transmute!(self)
    }

    fn checksum(&self, ino: u32) -> u32 {
        inode_crc(ino, &[&self.as_bytes()[..LINE - 4]])
    }
}

impl InodeUpper {
    /// Reads and checks the half of inode `ino`.
    ///
    /// # Errors
    /// A wrong checksum; a tree deeper than any file needs.
    pub fn decode(bytes: &[u8], ino: u32) -> Result<Self, FormatError> {
        let (half, _) =
            Self::read_from_prefix(bytes).map_err(|_| FormatError::Field("an inode", "length"))?;
        if half.crc.get() != half.checksum(ino) {
            return Err(FormatError::Checksum("an inode's upper half"));
        }
        if half.depth.get() > 5 {
            return Err(FormatError::Field("an inode", "extent tree depth"));
        }
        Ok(half)
    }

    /// The line, with its checksum.
    #[must_use]
    pub fn encode(mut self, ino: u32) -> [u8; LINE] {
        self.crc = self.checksum(ino).into();
        zerocopy::transmute!(self)
    }

    fn checksum(&self, ino: u32) -> u32 {
        let bytes = self.as_bytes();
        inode_crc(ino, &[&bytes[..12], &bytes[16..]])
    }
}

impl NodeHeader {
    /// Reads and checks a node of inode `ino` that should have `depth` levels below it, and returns its
    /// entries.
    ///
    /// # Errors
    /// What does not match.
    pub fn decode(page: &[u8; PAGE], ino: u32, depth: u16) -> Result<&[Extent], FormatError> {
        let what = "an extent node";
        let (header, rest) = Self::ref_from_prefix(page).map_err(|_| FormatError::Field(what, "length"))?;
        let count = usize::from(header.count.get());
        if header.magic.get() != NODE_MAGIC || header.ino.get() != ino || header.depth.get() != depth {
            return Err(FormatError::Field(what, "owner or depth"));
        }
        if count == 0 || count > NODE_ENTRIES {
            return Err(FormatError::Field(what, "entry count"));
        }
        let entries = <[Extent]>::ref_from_bytes_with_elems(&rest[..count * size_of::<Extent>()], count)
            .map_err(|_| FormatError::Field(what, "length"))?;
        if header.crc.get() != Self::checksum(header, entries) {
            return Err(FormatError::Checksum(what));
        }
        Ok(entries)
    }

    /// Writes a node into `page` and returns the bytes used.
    pub fn encode(page: &mut [u8; PAGE], ino: u32, depth: u16, entries: &[Extent]) -> usize {
        debug_assert!(entries.len() <= NODE_ENTRIES, "the tree splits before a node overflows");
        let mut header = Self {
            magic: NODE_MAGIC.into(),
            depth: depth.into(),
            count: (entries.len() as u16).into(),
            ino: ino.into(),
            crc: U32::ZERO,
        };
        header.crc = Self::checksum(&header, entries).into();
        let body = entries.as_bytes();
        let used = size_of::<Self>() + body.len();
        page[..size_of::<Self>()].copy_from_slice(header.as_bytes());
        page[size_of::<Self>()..used].copy_from_slice(body);
        used
    }

    fn checksum(header: &Self, entries: &[Extent]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&header.as_bytes()[..12]), entries.as_bytes())
    }
}

impl XattrHeader {
    /// Reads and checks the attributes of inode `ino`, as names and values.
    ///
    /// # Errors
    /// What does not match.
    #[expect(clippy::type_complexity, reason = "pairs of names and values, which is what they are")]
    pub fn decode(page: &[u8; PAGE], ino: u32) -> Result<Vec<(Vec<u8>, Vec<u8>)>, FormatError> {
        let what = "a page of extended attributes";
        let (header, _) = Self::read_from_prefix(page).map_err(|_| FormatError::Field(what, "length"))?;
        let used = usize::from(header.used.get());
        if header.magic.get() != XATTR_MAGIC || header.ino.get() != ino {
            return Err(FormatError::Field(what, "owner"));
        }
        if !(size_of::<Self>()..=PAGE).contains(&used) {
            return Err(FormatError::Field(what, "length"));
        }
        let mut rest = &page[size_of::<Self>()..used];
        if header.crc.get() != header.checksum(rest) {
            return Err(FormatError::Checksum(what));
        }
        let mut attributes = Vec::new();
        for _ in 0..header.count.get() {
            let (entry, body) = XattrEntry::read_from_prefix(rest)
                .map_err(|_| FormatError::Field(what, "attribute count"))?;
            let (name, value) = (usize::from(entry.name_bytes.get()), usize::from(entry.value_bytes.get()));
            if name == 0 || name > 255 || body.len() < name + value {
                return Err(FormatError::Field(what, "attribute length"));
            }
            attributes.push((body[..name].to_vec(), body[name..name + value].to_vec()));
            rest = &body[name + value..];
        }
        Ok(attributes)
    }

    /// Whether a page can hold these attributes.
    pub fn fits(attributes: &[(Vec<u8>, Vec<u8>)]) -> bool {
        let bytes = |(name, value): &(Vec<u8>, Vec<u8>)| size_of::<XattrEntry>() + name.len() + value.len();
        size_of::<Self>() + attributes.iter().map(bytes).sum::<usize>() <= PAGE
    }

    /// Writes the attributes of inode `ino` into `page` and returns the bytes used; `None` if they do not
    /// fit.
    pub fn encode(page: &mut [u8; PAGE], ino: u32, attributes: &[(Vec<u8>, Vec<u8>)]) -> Option<usize> {
        let mut at = size_of::<Self>();
        for (name, value) in attributes {
            let end = at + size_of::<XattrEntry>() + name.len() + value.len();
            if end > PAGE {
                return None;
            }
            let entry = XattrEntry {
                name_bytes: (name.len() as u16).into(),
                value_bytes: (value.len() as u16).into(),
            };
            page[at..at + size_of::<XattrEntry>()].copy_from_slice(entry.as_bytes());
            at += size_of::<XattrEntry>();
            page[at..at + name.len()].copy_from_slice(name);
            page[at + name.len()..end].copy_from_slice(value);
            at = end;
        }
        let mut header = Self {
            magic: XATTR_MAGIC.into(),
            count: (attributes.len() as u16).into(),
            used: (at as u16).into(),
            ino: ino.into(),
            crc: U32::ZERO,
        };
        header.crc = header.checksum(&page[size_of::<Self>()..at]).into();
        page[..size_of::<Self>()].copy_from_slice(header.as_bytes());
        Some(at)
    }

    fn checksum(&self, body: &[u8]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&self.as_bytes()[..12]), body)
    }
}
