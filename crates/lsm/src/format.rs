//! What the store puts on the device: log entries and slots in the memory area, and on the block side what
//! stands in `format/`. Little-endian, sizes fixed at compile time. The byte diagrams are in
//! docs/format/lsm.md. This module and those below it import no sibling.

mod areas;
mod records;
mod table;

pub use areas::{
    BackingHeader, LEVELS, MANIFEST_PAGES_MAX, Superblock, TableRecord, decode_manifest, encode_manifest,
    manifest_pages,
};
pub use records::{BATCH_MAX, BatchHeader, KEY_MAX, VALUE_MAX, decode_record, encode_record, record_bytes};
pub use table::{
    BLOCK_FRAME, Footer, Indexed, TABLE_PAGES_MAX, decode_block, decode_index, encode_block,
    encode_entry as encode_table_entry, encode_index,
};

use smallvec::SmallVec;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a page of the block side.
pub const PAGE: usize = 4096;
/// Log entries begin and end at multiples of this.
pub const LINE: usize = 64;
/// Bytes of the log's metadata area, at its beginning.
pub const SLOTS_BYTES: u64 = 4096;
/// Slots in it.
pub const SLOTS: usize = SLOTS_BYTES as usize / 8;
/// "TxB1": a log entry begins.
pub const TXB_MAGIC: u32 = 0x3142_7854;
/// Bytes of a log entry that are not content.
pub const ENTRY_FRAME: usize = size_of::<TxBegin>() + size_of::<TxEnd>();

const _: () = assert!(size_of::<TxBegin>() == 8 && size_of::<TxEnd>() == 8 && size_of::<U64>() == 8);

/// TxB, the first 8 B of a log entry.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct TxBegin {
    /// [`TXB_MAGIC`].
    pub magic: U32,
    /// Bytes of the content.
    pub length: U32,
}

/// TxE, the last 8 B of a log entry: it says that all before it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct TxEnd {
    /// The log's salt and the length: contents cannot be taken for the end of an entry by chance.
    pub mark: U32,
    /// CRC-32C of salt, address in the log, TxB and content.
    pub crc: U32,
}

/// A slot of the metadata area: where one file of the log is. Stored as one 8 B unit, which no failure tears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Whether there is a file.
    pub valid: bool,
    /// Whether it takes entries. With an end: its content is of no more use and is being zeroed.
    pub active: bool,
    /// First byte, from the start of the data area, below 2^31.
    pub start: u32,
    /// First byte behind it; zero while it takes entries.
    pub end: u32,
}

impl Slot {
    /// The slot's 8 bytes: valid bit, 31 bits of start, active bit, 31 bits of end, from the highest bit
    /// down.
    #[must_use]
    pub fn encode(self) -> [u8; 8] {
        let high = u64::from(self.valid) << 31 | u64::from(self.start & 0x7fff_ffff);
        let low = u64::from(self.active) << 31 | u64::from(self.end & 0x7fff_ffff);
        (high << 32 | low).to_le_bytes()
    }

    /// What 8 bytes say.
    #[must_use]
    pub fn decode(bytes: [u8; 8]) -> Self {
        let bits = u64::from_le_bytes(bytes);
        Self {
            valid: bits >> 63 == 1,
            active: bits >> 31 & 1 == 1,
            start: (bits >> 32) as u32 & 0x7fff_ffff,
            end: bits as u32 & 0x7fff_ffff,
        }
    }
}

/// Bytes that an entry with `content` bytes takes in the log.
#[must_use]
pub const fn entry_bytes(content: usize) -> usize {
    (content + ENTRY_FRAME).next_multiple_of(LINE)
}

/// The end of the entry at `at` (from the start of the data area) with these TxB and content.
fn entry_end(salt: u64, at: u64, begin_and_content: &[u8]) -> TxEnd {
    let place = [U64::new(salt), U64::new(at)];
    let crc = crc32c::crc32c_append(crc32c::crc32c(place.as_bytes()), begin_and_content);
    let content = begin_and_content.len() - size_of::<TxBegin>();
    TxEnd { mark: U32::new(end_mark(salt, content)), crc: U32::new(crc) }
}

fn end_mark(salt: u64, content: usize) -> u32 {
    // Never zero, so that zeroed memory is no end.
    (salt as u32 ^ (salt >> 32) as u32 ^ content as u32) | 1
}

/// Bytes of an entry on the stack: the change of a name takes less, data that go with one more.
const ENTRY_ON_STACK: usize = 512;

/// An entry on its way into the log.
pub type EncodedEntry = SmallVec<[u8; ENTRY_ON_STACK]>;

/// All bytes of the entry at `at`, whose content is the parts one after the other.
#[must_use]
pub fn encode_entry(salt: u64, at: u64, parts: &[&[u8]]) -> EncodedEntry {
    let length = parts.iter().map(|part| part.len()).sum();
    let begin = TxBegin { magic: U32::new(TXB_MAGIC), length: U32::new(length as u32) };
    let mut bytes = EncodedEntry::with_capacity(entry_bytes(length));
    bytes.extend_from_slice(begin.as_bytes());
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    let end = entry_end(salt, at, &bytes);
    bytes.resize(entry_bytes(length) - size_of::<TxEnd>(), 0);
    bytes.extend_from_slice(end.as_bytes());
    bytes
}

/// What stands at the start of some bytes of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// A complete entry.
    Entry {
        /// Its content.
        content: &'a [u8],
        /// Bytes it takes.
        bytes: usize,
    },
    /// The begin of an entry whose marks agree and whose checksum does not: it was not completely stored.
    Torn {
        /// Bytes that were checked to find that out.
        checked: usize,
    },
    /// Anything else.
    Nothing,
}

/// What stands at the start of `bytes`, which are those at `at` of the data area.
#[must_use]
pub fn decode_entry(salt: u64, at: u64, bytes: &[u8]) -> Found<'_> {
    let Ok((begin, rest)) = TxBegin::read_from_prefix(bytes) else { return Found::Nothing };
    let length = begin.length.get() as usize;
    // The length is compared before anything is added to it.
    if begin.magic.get() != TXB_MAGIC || length > rest.len() || entry_bytes(length) > bytes.len() {
        return Found::Nothing;
    }
    let whole = &bytes[..entry_bytes(length)];
    let Ok((_, end)) = TxEnd::read_from_suffix(whole) else { return Found::Nothing };
    if end.mark.get() != end_mark(salt, length) {
        return Found::Nothing;
    }
    let content = &rest[..length];
    if end != entry_end(salt, at, &whole[..size_of::<TxBegin>() + length]) {
        return Found::Torn { checked: length };
    }
    Found::Entry { content, bytes: whole.len() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_the_papers_bits() {
        let slot = Slot { valid: true, active: true, start: 0x1234_5678, end: 0 };
        assert_eq!(u64::from_le_bytes(slot.encode()), 0x9234_5678_8000_0000);
        assert_eq!(Slot::decode(slot.encode()), slot);
        let sealed = Slot { valid: true, active: false, start: 64, end: 0x7fff_ffff };
        assert_eq!(Slot::decode(sealed.encode()), sealed);
        assert!(!Slot::decode([0; 8]).valid);
    }

    #[test]
    fn an_entry_counts_only_at_its_place_with_its_salt_and_whole() {
        for length in [0, 1, 47, 48, 49, 112, 5000] {
            let content: Vec<u8> = (0..length).map(|byte| byte as u8).collect();
            let bytes = encode_entry(7, 128, &[&content]);
            assert!(bytes.len().is_multiple_of(LINE) && bytes.len() == entry_bytes(length));
            let whole = Found::Entry { content: &content, bytes: bytes.len() };
            assert_eq!(decode_entry(7, 128, &bytes), whole);
            assert_eq!(decode_entry(7, 192, &bytes), Found::Torn { checked: length });
            assert_eq!(decode_entry(8, 128, &bytes), Found::Nothing);
            for unit in 0..(bytes.len() / 8) {
                let mut lost = bytes.clone();
                lost[unit * 8..][..8].fill(0);
                let padding = (8 + length).div_ceil(8)..bytes.len() / 8 - 1;
                assert!(
                    decode_entry(7, 128, &lost) != whole || padding.contains(&unit) || lost == bytes,
                    "{unit}"
                );
            }
        }
    }
}
