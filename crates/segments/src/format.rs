//! What lies on the device as whole blocks: nodes, blocks of the NAT, segment summaries
//! (`docs/format/augefs.md`).
//!
//! All of it is little-endian, with a checksum and the number of the file system that it is of.

mod inode;
mod superblock;

pub use inode::InodeHead;
pub use superblock::{LABEL_BYTES, Origin};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a block.
pub const PAGE: usize = 4096;
/// No counter gets so far: one that says so is damaged, and what is added to the others does not overflow.
pub const COUNTER_MAX: u64 = u64::MAX / 4;

const NODE_MAGIC: u32 = u32::from_le_bytes(*b"ANOD");
const NAT_MAGIC: u32 = u32::from_le_bytes(*b"ANAT");
const SSA_MAGIC: u32 = u32::from_le_bytes(*b"ASSA");
const SIT_MAGIC: u32 = u32::from_le_bytes(*b"ASIT");

/// Addresses in a node: pages of a file that it covers.
pub const ADDRESSES: usize = (PAGE - size_of::<NodeHead>()) / 4;
/// Entries in a NAT block.
pub const NAT_ENTRIES: usize = (PAGE - size_of::<BlockHead>()) / 4;
/// Entries in a SIT block.
pub const SIT_ENTRIES: usize = (PAGE - size_of::<BlockHead>()) / size_of::<SitEntry>();
/// What a SIT entry says of a segment that nobody owns.
pub const SIT_FREE: u8 = 2;
/// Most blocks of a segment: the paper's 2 MB.
pub const SEGMENT_BLOCKS_MAX: usize = 512;
/// The slot in a summary that stands for the node itself.
pub const SUMMARY_SLOT_NODE: u16 = u16::MAX;

/// Where a page of a file, or a node, is.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(transparent)]
pub struct Address(U32);

impl Address {
    /// Nowhere: it reads as zeros.
    pub const HOLE: Self = Self(U32::ZERO);
    /// Nowhere, with a block's worth of space held.
    pub const RESERVED: Self = Self(U32::new(1));

    /// Block `block` of the main area.
    #[must_use]
    pub const fn at(block: u32) -> Self {
        Self(U32::new(block + 2))
    }

    /// The block of the main area, if it is in one.
    #[must_use]
    pub const fn block(self) -> Option<u32> {
        self.0.get().checked_sub(2)
    }

    /// What stands on the device, for words of a node that are something else.
    #[must_use]
    pub const fn word(self) -> u32 {
        self.0.get()
    }

    /// See [`word`](Self::word).
    #[must_use]
    pub const fn of_word(word: u32) -> Self {
        Self(U32::new(word))
    }

    /// Whether it takes space.
    #[must_use]
    pub fn is_hole(self) -> bool {
        self == Self::HOLE
    }
}

/// What a node says of itself, besides its addresses.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct NodeHead {
    magic: U32,
    crc: U32,
    salt: U64,
    /// The domain.
    pub domain: U16,
    /// 1 if an `fsync` wrote it: recovery may use it.
    pub fsync: U16,
    /// The processor whose write version it has.
    pub processor: U32,
    /// The checkpoint that it comes after.
    pub version: U64,
    /// Its place in the order of the domain's changes.
    pub sequence: U64,
    /// The processor's write version when it was written (AugeFS §VI-B).
    pub write_version: U64,
    /// The file.
    pub ino: U64,
    /// Its number in the NAT.
    pub nid: U32,
    /// Which part of the file it covers.
    pub index: U32,
}

/// A direct node: where the pages of a part of a file are.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct NodeBlock {
    /// What it is.
    pub head: NodeHead,
    /// Where the pages are.
    pub addresses: [Address; ADDRESSES],
}

/// What a NAT block and a summary begin with.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BlockHead {
    magic: U32,
    crc: U32,
    salt: U64,
    domain: U16,
    zero: U16,
    /// Of a NAT block its number, of a summary its segment.
    number: U32,
    version: U64,
}

/// A block of the NAT: where nodes are. All of them are of one domain.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct NatBlock {
    head: BlockHead,
    /// By number of the node, where it is.
    pub entries: [Address; NAT_ENTRIES],
}

/// Which page of which node a block of a segment holds.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Summary {
    /// The node's number.
    pub nid: U32,
    /// Which of its addresses, or [`SUMMARY_SLOT_NODE`].
    pub slot: U16,
}

/// The summary of a full segment.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SsaBlock {
    head: BlockHead,
    /// By block of the segment.
    pub entries: [Summary; SEGMENT_BLOCKS_MAX],
    zero: [u8; PAGE - size_of::<BlockHead>() - SEGMENT_BLOCKS_MAX * size_of::<Summary>()],
}

/// What a SIT block says of a segment.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SitEntry {
    /// 0: of data, 1: of nodes, [`SIT_FREE`].
    pub kind: u8,
    zero: [u8; 3],
    /// A bit for each valid block.
    pub valid: [U64; SEGMENT_BLOCKS_MAX / 64],
}

/// A block of the SIT, for who has no other place for it.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SitBlock {
    head: BlockHead,
    /// By number of the segment.
    pub entries: [SitEntry; SIT_ENTRIES],
    zero: [u8; PAGE - size_of::<BlockHead>() - SIT_ENTRIES * size_of::<SitEntry>()],
}

/// Where a log goes on.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct LogRecord {
    /// The segment; [`u32::MAX`] for none.
    pub segment: U32,
    /// The first block of it that is free.
    pub next: U32,
}

/// What segments, NAT and summaries take of a device: it lies in a row, from the NAT on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Areas {
    /// First of the NAT's pages; block `n` has the pages `2 n` and `2 n + 1` from here.
    pub nat_first: u64,
    /// NAT blocks.
    pub nat_blocks: u32,
    /// Segments.
    pub segments: u32,
    /// Blocks of a segment.
    pub segment_blocks: u32,
}

impl Areas {
    /// First of the segment summaries, a page for each segment.
    #[must_use]
    pub const fn ssa_first(&self) -> u64 {
        self.nat_first + 2 * self.nat_blocks as u64
    }

    /// First page of segment 0.
    #[must_use]
    pub const fn main_first(&self) -> u64 {
        self.ssa_first() + self.segments as u64
    }

    /// Blocks of all segments.
    #[must_use]
    pub const fn main_blocks(&self) -> u64 {
        self.segments as u64 * self.segment_blocks as u64
    }

    /// Pages of everything, with all before the NAT.
    #[must_use]
    pub const fn pages(&self) -> u64 {
        self.main_first() + self.main_blocks()
    }

    /// Numbers of nodes, 0 among them, which is none.
    #[must_use]
    pub const fn nids(&self) -> u32 {
        self.nat_blocks * NAT_ENTRIES as u32
    }
}

const _: () = assert!(size_of::<SitEntry>() == 68 && size_of::<SitBlock>() == PAGE && SIT_ENTRIES == 59);
const _: () = assert!(size_of::<NodeHead>() == 64 && size_of::<BlockHead>() == 32);
const _: () = assert!(size_of::<NodeBlock>() == PAGE && size_of::<NatBlock>() == PAGE);
const _: () = assert!(size_of::<SsaBlock>() == PAGE);

/// Of all that is behind the field itself.
fn checksum(block: &[u8]) -> u32 {
    crc32c::crc32c(&block[8..])
}

impl LogRecord {
    /// That of a log.
    #[must_use]
    pub fn new(log: Option<Log>) -> Self {
        let log = log.unwrap_or(Log { segment: u32::MAX, next: 0 });
        Self { segment: log.segment.into(), next: log.next.into() }
    }

    /// The log, if it is one.
    #[must_use]
    pub fn log(self) -> Option<Log> {
        let log = Log { segment: self.segment.get(), next: self.next.get() };
        (log.segment != u32::MAX).then_some(log)
    }
}

/// An active segment.
#[derive(Clone, Copy, Debug)]
pub struct Log {
    /// Which.
    pub segment: u32,
    /// Its first free block.
    pub next: u32,
}

impl NodeHead {
    /// A head with nothing but what names the node.
    #[must_use]
    pub fn new(domain: u16, ino: u64, nid: u32, index: u32) -> Self {
        let mut head = Self::new_zeroed();
        (head.domain, head.ino) = (domain.into(), ino.into());
        (head.nid, head.index) = (nid.into(), index.into());
        head
    }
}

impl NodeBlock {
    /// Puts the file system's mark and the checksum in.
    pub fn seal(&mut self, salt: u64) {
        (self.head.magic, self.head.salt) = (NODE_MAGIC.into(), salt.into());
        self.head.crc = checksum(self.as_bytes()).into();
    }

    /// The node that a page holds, if it is one of this file system.
    #[must_use]
    pub fn decode(page: &[u8], salt: u64) -> Option<Box<Self>> {
        let node = Self::read_from_bytes(page).ok()?;
        let sound = node.head.magic.get() == NODE_MAGIC
            && node.head.salt.get() == salt
            && node.head.crc.get() == checksum(page);
        sound.then(|| Box::new(node))
    }
}

impl BlockHead {
    fn is_sound(&self, magic: u32, salt: u64, number: u32, page: &[u8]) -> bool {
        self.magic.get() == magic
            && self.salt.get() == salt
            && self.number.get() == number
            && self.crc.get() == checksum(page)
    }
}

impl NatBlock {
    /// A block with these entries, as of a checkpoint.
    #[must_use]
    pub fn new(salt: u64, domain: u16, number: u32, version: u64, entries: &[Address]) -> Box<Self> {
        let mut block = Box::new(Self::new_zeroed());
        (block.head.magic, block.head.salt) = (NAT_MAGIC.into(), salt.into());
        (block.head.domain, block.head.number) = (domain.into(), number.into());
        block.head.version = version.into();
        block.entries[..entries.len()].copy_from_slice(entries);
        block.head.crc = checksum(block.as_bytes()).into();
        block
    }

    /// The block that a page holds, its domain and its checkpoint.
    #[must_use]
    pub fn decode(page: &[u8], salt: u64, number: u32) -> Option<(u16, u64, Box<Self>)> {
        let block = Self::read_from_bytes(page).ok()?;
        let head = block.head;
        head.is_sound(NAT_MAGIC, salt, number, page)
            .then(|| (head.domain.get(), head.version.get(), Box::new(block)))
    }
}

impl SsaBlock {
    /// The summary of a segment.
    #[must_use]
    pub fn new(salt: u64, segment: u32, entries: &[Summary]) -> Box<Self> {
        let mut block = Box::new(Self::new_zeroed());
        (block.head.magic, block.head.salt) = (SSA_MAGIC.into(), salt.into());
        block.head.number = segment.into();
        block.entries[..entries.len()].copy_from_slice(entries);
        block.head.crc = checksum(block.as_bytes()).into();
        block
    }

    /// The summary that a page holds, if it is this segment's.
    #[must_use]
    pub fn decode(page: &[u8], salt: u64, segment: u32) -> Option<Box<Self>> {
        let block = Self::read_from_bytes(page).ok()?;
        block.head.is_sound(SSA_MAGIC, salt, segment, page).then(|| Box::new(block))
    }
}

impl SitEntry {
    /// That of a segment with these valid blocks; of none, that it is free.
    #[must_use]
    pub fn new(segment: Option<(u8, &[u64])>) -> Self {
        let (kind, words) = segment.unwrap_or((SIT_FREE, &[]));
        let mut valid = [U64::ZERO; SEGMENT_BLOCKS_MAX / 64];
        for (into, word) in valid.iter_mut().zip(words) {
            *into = (*word).into();
        }
        Self { kind, zero: [0; 3], valid }
    }
}

impl SitBlock {
    /// A block with these entries, as of a checkpoint.
    #[must_use]
    pub fn new(salt: u64, number: u32, version: u64, entries: &[SitEntry]) -> Box<Self> {
        let mut block = Box::new(Self::new_zeroed());
        block.entries.fill(SitEntry::new(None));
        (block.head.magic, block.head.salt) = (SIT_MAGIC.into(), salt.into());
        (block.head.number, block.head.version) = (number.into(), version.into());
        block.entries[..entries.len()].copy_from_slice(entries);
        block.head.crc = checksum(block.as_bytes()).into();
        block
    }

    /// The block that a page holds, and its checkpoint.
    #[must_use]
    pub fn decode(page: &[u8], salt: u64, number: u32) -> Option<(u64, Box<Self>)> {
        let block = Self::read_from_bytes(page).ok()?;
        let head = block.head;
        head.is_sound(SIT_MAGIC, salt, number, page).then(|| (head.version.get(), Box::new(block)))
    }
}
