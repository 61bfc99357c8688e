//! A record of the journal, in one lane, contiguous:
//!
//! ```text
//! header (64 B) | body: operations | marks: 8 B for each sub-write | tail (16 B) | its operations | to 64 B
//! ```
//!
//! The header is durable before anything behind it in the lane is used. A record counts once its marks are
//! all set and its tail's checksum is that of body and tail (RO-4); what does not count is passed over.
//! Positions count up for ever; a record lies at its position modulo the lane's size.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Records begin at multiples of this.
pub const JOURNAL_ALIGN: u64 = 64;
/// Operations take multiples of this.
pub const OP_ALIGN: usize = 8;

const HEADER_MAGIC: u32 = 0x484A_4D52;

/// The head of a lane: position of the oldest record that recovery may need.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct LaneHead {
    /// Position.
    pub position: U64,
}

/// The header of a record (H).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RecordHeader {
    /// Magic number.
    pub magic: U32,
    /// CRC-32C of all that follows in the header.
    pub crc: U32,
    /// Where the record is.
    pub position: U64,
    /// Bytes of the record, a multiple of [`JOURNAL_ALIGN`].
    pub bytes: U32,
    /// Bytes of the body, a multiple of [`OP_ALIGN`].
    pub body: U32,
    /// Sub-writes on the memory path (L).
    pub logs: U16,
    /// Sub-writes on the block path (B).
    pub blocks: U16,
    /// Zero.
    pub reserved: [u8; 36],
}

const _: () = assert!(size_of::<RecordHeader>() == JOURNAL_ALIGN as usize);

impl RecordHeader {
    /// A header.
    #[must_use]
    pub fn new(position: u64, bytes: u64, body: usize, logs: u16, blocks: u16) -> Self {
        let mut header = Self {
            magic: HEADER_MAGIC.into(),
            crc: 0.into(),
            position: position.into(),
            bytes: (bytes as u32).into(),
            body: (body as u32).into(),
            logs: logs.into(),
            blocks: blocks.into(),
            reserved: [0; 36],
        };
        header.crc = header_crc(&header).into();
        header
    }

    /// Whether this is the header of a record at `position` that ends within a lane of `lane_bytes`.
    #[must_use]
    pub fn is_at(&self, position: u64, lane_bytes: u64) -> bool {
        let bytes = u64::from(self.bytes.get());
        self.magic.get() == HEADER_MAGIC
            && self.crc.get() == header_crc(self)
            && self.position.get() == position
            && bytes.is_multiple_of(JOURNAL_ALIGN)
            && (self.is_filler() || self.tail_at() + size_of::<RecordTail>() as u64 <= bytes)
            && bytes <= lane_bytes - position % lane_bytes
            && bytes > 0
    }

    /// Whether it only fills the lane up to its end.
    #[must_use]
    pub fn is_filler(&self) -> bool {
        self.body.get() == 0 && self.marks() == 0
    }

    /// Sub-writes.
    #[must_use]
    pub fn marks(&self) -> u64 {
        u64::from(self.logs.get()) + u64::from(self.blocks.get())
    }

    /// Where the marks begin, from the record's first byte.
    #[must_use]
    pub fn marks_at(&self) -> u64 {
        size_of::<Self>() as u64 + u64::from(self.body.get())
    }

    /// Where the tail begins, from the record's first byte.
    #[must_use]
    pub fn tail_at(&self) -> u64 {
        self.marks_at() + self.marks() * 8
    }
}

/// The checksum that a header asks for.
#[must_use]
pub fn header_crc(header: &RecordHeader) -> u32 {
    crc32c::crc32c(&header.as_bytes()[8..])
}

/// What the mark of a finished sub-write says: no other record has the same one in this place.
#[must_use]
pub const fn mark(position: u64, number: u64) -> u64 {
    (position + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(number)
}

/// The tail of a record (T).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RecordTail {
    /// Number of the transaction: they are applied in this order.
    pub sequence: U64,
    /// Bytes of the operations behind the tail.
    pub bytes: U32,
    /// CRC-32C of position, number, body and the operations behind the tail.
    pub crc: U32,
}

impl RecordTail {
    /// The tail that a record asks for.
    #[must_use]
    pub fn new(position: u64, sequence: u64, body: &[u8], ops: &[u8]) -> Self {
        let mut crc = crc32c::crc32c(&position.to_le_bytes());
        crc = crc32c::crc32c_append(crc, &sequence.to_le_bytes());
        crc = crc32c::crc32c_append(crc, body);
        crc = crc32c::crc32c_append(crc, ops);
        Self { sequence: sequence.into(), bytes: (ops.len() as u32).into(), crc: crc.into() }
    }
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum OpKind {
    /// Stores the bytes that follow.
    Bytes = 1,
    /// Stores zeros.
    Zeros = 2,
    /// Sets bits of a map.
    Set = 3,
    /// Clears bits of a map.
    Clear = 4,
}

/// An operation; the bytes of [`OpKind::Bytes`] follow, up to a multiple of [`OP_ALIGN`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct OpHeader {
    /// [`OpKind`].
    pub kind: u8,
    /// [`Map`](super::Map).
    pub map: u8,
    /// Zero.
    pub reserved: U16,
    /// Bytes, or bits.
    pub count: U32,
    /// First byte's address, or first bit.
    pub at: U64,
}

const _: () = assert!(size_of::<OpHeader>() == 16);
