//! Blocks of the journal: superblock, descriptors, revocations, commit records.
//!
//! Every block of the four kinds starts with a [`JournalHeader`], whose checksum covers the whole block and
//! is seeded with the file system's UUID. A copy of a metadata block that happens to start with the magic
//! number is written with its first four bytes cleared and [`TAG_ESCAPED`] in its tag, so that contents never
//! pass for a journal block.

use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::BLOCK;

/// First bytes of every journal block but the copies.
pub const JOURNAL_MAGIC: u32 = 0x4A45_3441;

/// Lists the blocks whose copies follow.
pub const DESCRIPTOR: u32 = 1;
/// Ends a transaction.
pub const COMMIT: u32 = 2;
/// The journal's first block.
pub const SUPER: u32 = 4;
/// Lists blocks of which older copies must not be written back.
pub const REVOKE: u32 = 5;

/// What starts a journal block.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct JournalHeader {
    /// [`JOURNAL_MAGIC`].
    pub magic: U32,
    /// [`DESCRIPTOR`], [`COMMIT`], [`SUPER`] or [`REVOKE`].
    pub kind: U32,
    /// The transaction's number.
    pub sequence: U32,
    /// Tags or blocks that follow the header; blocks of the whole transaction in a commit record.
    pub count: U32,
    /// CRC-32C, with the journal's seed, of the whole block with this field zero.
    pub crc: U32,
}

const HEADER: usize = size_of::<JournalHeader>();
const _: () = assert!(HEADER == 20, "the tables below start there");

/// A block whose copy follows its descriptor.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct JournalTag {
    /// Where it belongs.
    pub lba: U64,
    /// [`TAG_ESCAPED`].
    pub flags: U32,
    /// CRC-32C, with the journal's seed, of the sequence number and the copy as it stands in the journal.
    pub crc: U32,
}

/// The copy's first four bytes are the magic number and stand as zeros in the journal.
pub const TAG_ESCAPED: u32 = 1;
/// Tags in a descriptor.
pub const DESCRIPTOR_TAGS: usize = (BLOCK - HEADER) / size_of::<JournalTag>();
/// Blocks in a revocation.
pub const REVOKE_BLOCKS: usize = (BLOCK - HEADER) / 8;

/// Behind the header of the journal's first block.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct JournalSuper {
    /// Block of the journal where the oldest transaction that may be needed starts; 0: none is.
    pub start: U32,
}

/// Behind the header of a commit record.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct CommitRecord {
    /// Time of the commit, ns since 1970.
    pub time_ns: I64,
}

impl JournalHeader {
    /// A block of this kind with `body` behind the header, and its checksum.
    #[must_use]
    pub fn block(kind: u32, sequence: u32, count: u32, body: &[u8], seed: u32) -> [u8; BLOCK] {
        let header = Self {
            magic: JOURNAL_MAGIC.into(),
            kind: kind.into(),
            sequence: sequence.into(),
            count: count.into(),
            crc: 0.into(),
        };
        let mut block = [0; BLOCK];
        block[..HEADER].copy_from_slice(header.as_bytes());
        block[HEADER..HEADER + body.len()].copy_from_slice(body);
        let crc = crc32c::crc32c_append(seed, &block);
        block[HEADER - 4..HEADER].copy_from_slice(&crc.to_le_bytes());
        block
    }

    /// Reads a journal block: its header, and what follows. None if it is none of this journal's.
    #[must_use]
    pub fn read(block: &[u8; BLOCK], seed: u32) -> Option<(Self, &[u8])> {
        let (header, body) = Self::read_from_prefix(block).ok()?;
        let crc = crc32c::crc32c_append(seed, &block[..HEADER - 4]);
        let crc = crc32c::crc32c_append(crc32c::crc32c_append(crc, &[0; 4]), body);
        (header.magic.get() == JOURNAL_MAGIC && header.crc.get() == crc).then_some((header, body))
    }
}

/// The checksum of a copy in the journal.
#[must_use]
pub fn journal_block_crc(seed: u32, sequence: u32, block: &[u8; BLOCK]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c_append(seed, &sequence.to_le_bytes()), block)
}
