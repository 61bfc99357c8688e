//! Keys and values: a change as it stands in a batch of the log, and an entry as it stands in a block of a
//! table.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The longest key.
pub const KEY_MAX: usize = 4096;
/// The longest value.
pub const VALUE_MAX: usize = 256 << 10;
/// The most bytes of a batch in the log.
pub const BATCH_MAX: usize = 1 << 20;

/// Before each key and value.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RecordHeader {
    /// 1: a value is put; 0: the key is deleted.
    put: u8,
    zero: u8,
    key: U16,
    value: U32,
}

/// At the beginning of a batch.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BatchHeader {
    /// Sequence number of the first change; the others follow it.
    pub first: U64,
    /// Number of changes.
    pub count: U32,
    /// Zero.
    pub zero: U32,
}

const _: () = assert!(size_of::<RecordHeader>() == 8 && size_of::<BatchHeader>() == 16);

/// Bytes that a record takes.
#[must_use]
pub fn record_bytes(key: &[u8], value: Option<&[u8]>) -> usize {
    size_of::<RecordHeader>() + key.len() + value.map_or(0, <[u8]>::len)
}

/// Appends a record. The caller keeps to [`KEY_MAX`] and [`VALUE_MAX`].
pub fn encode_record(into: &mut Vec<u8>, key: &[u8], value: Option<&[u8]>) {
    let header = RecordHeader {
        put: u8::from(value.is_some()),
        zero: 0,
        key: U16::new(key.len() as u16),
        value: U32::new(value.map_or(0, <[u8]>::len) as u32),
    };
    into.extend_from_slice(header.as_bytes());
    into.extend_from_slice(key);
    into.extend_from_slice(value.unwrap_or_default());
}

/// A record: its key, and its value unless it is a deletion.
pub type Record<'a> = (&'a [u8], Option<&'a [u8]>);

/// The record at the start of `bytes`, and what is behind it.
#[must_use]
pub fn decode_record(bytes: &[u8]) -> Option<(Record<'_>, &[u8])> {
    let (header, rest) = RecordHeader::read_from_prefix(bytes).ok()?;
    let (key, value) = (header.key.get() as usize, header.value.get() as usize);
    if header.put > 1 || header.zero != 0 || key > KEY_MAX || value > VALUE_MAX {
        return None;
    }
    if header.put == 0 && value > 0 {
        return None;
    }
    let (key, rest) = rest.split_at_checked(key)?;
    let (value, rest) = rest.split_at_checked(value)?;
    Some(((key, (header.put == 1).then_some(value)), rest))
}
