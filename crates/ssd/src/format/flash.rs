//! What lies in flash beside the data, and in checkpoints of the mapping: out-of-band records, block headers,
//! mapping words, trim records.

use std::mem::{offset_of, size_of};

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::PAGE;

/// The out-of-band record of a flash page, next to its data: what the mapping is rebuilt from.
///
/// Every record is of a page that was current once. Of several of one logical page, that with the greatest
/// [`order`](Oob::order) is current, unless a later trim says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Oob {
    /// [`Oob::PROGRAMMED`] once the page is programmed, [`Oob::UNREADABLE`] once ECC has given its data up, 0
    /// when erased.
    pub(crate) mark: U32,
    /// The logical page whose contents these are; [`Oob::NOT_DATA`] in mapping checkpoints.
    pub(crate) lpa: U32,
    /// Log entries of the page whose store number is at or below this are void: a block write replaced them.
    pub(crate) written_at: U64,
    /// Log entries whose commit (or, without transaction, store) number is at or below this are contained in
    /// the page.
    pub(crate) merged_to: U64,
    /// How often garbage collection has moved these contents: orders copies that are otherwise the same.
    pub(crate) moves: U32,
    /// CRC-32C of the 28 bytes before it.
    pub(crate) crc: U32,
}
const _: () = assert!(size_of::<Oob>() == 32);
/// Bytes of an out-of-band record.
pub(crate) const OOB_BYTES: u64 = size_of::<Oob>() as u64;

impl Oob {
    /// Says that a page is programmed.
    pub(crate) const PROGRAMMED: u32 = 0x5047_4d44;
    /// Says that a page is programmed and its data cannot be read. (The record has its own, stronger code.)
    pub(crate) const UNREADABLE: u32 = 0x4441_4544;
    /// The logical page of flash pages that hold none.
    pub(crate) const NOT_DATA: u32 = u32::MAX;

    /// A programmed page's record, with its checksum.
    pub(crate) fn new(lpa: u32, written_at: u64, merged_to: u64) -> Self {
        Self {
            mark: U32::new(Self::PROGRAMMED),
            lpa: U32::new(lpa),
            written_at: U64::new(written_at),
            merged_to: U64::new(merged_to),
            moves: U32::ZERO,
            crc: U32::ZERO,
        }
        .sealed()
    }

    /// A spent page: programmed, of no logical page.
    pub(crate) fn spent() -> Self {
        Self { mark: U32::new(Self::PROGRAMMED), ..Self::new_zeroed() }
    }

    /// The record of the same contents after one more move. A damaged record stays one.
    pub(crate) fn moved(self) -> Self {
        if !self.is_whole() {
            return self;
        }
        Self { moves: U32::new(self.moves.get().saturating_add(1)), ..self }.sealed()
    }

    /// The record of the same contents once they cannot be read any more.
    pub(crate) fn unreadable(self) -> Self {
        Self { mark: U32::new(Self::UNREADABLE), ..self }.sealed()
    }

    fn sealed(mut self) -> Self {
        self.crc = U32::new(self.checksum());
        self
    }

    /// The checksum that belongs in `crc`.
    pub(crate) fn checksum(&self) -> u32 {
        crc32c::crc32c(&self.as_bytes()[..offset_of!(Self, crc)])
    }

    /// Whether this is the whole record of logical page `lpa`.
    pub(crate) fn is_of(&self, lpa: u32) -> bool {
        self.lpa.get() == lpa && self.is_whole()
    }

    /// Whether this is a whole record.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self.mark.get(), Self::PROGRAMMED | Self::UNREADABLE) && self.crc.get() == self.checksum()
    }

    /// Whether ECC can read the data beside this record.
    pub(crate) fn is_readable(&self) -> bool {
        self.mark.get() == Self::PROGRAMMED
    }

    /// What orders the records of one logical page: the write sequence, then the moves.
    pub(crate) fn order(&self) -> (u64, u32) {
        (self.merged_to.get(), self.moves.get())
    }
}

/// The header of an erase block, in the spare area of its first page: 16 B, two atomic words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockHeader {
    /// How often the block was erased.
    pub(crate) erases: u32,
    /// Whether it was opened for programming since.
    pub(crate) in_use: bool,
    /// Whether it was opened for a mapping checkpoint.
    pub(crate) mapping: bool,
    /// Whether it must not be used: bad from the factory, or grown bad.
    pub(crate) bad: bool,
}
/// Bytes of a block header.
pub(crate) const BLOCK_HEADER_BYTES: u64 = 16;

impl BlockHeader {
    const IN_USE: u64 = 1 << 32;
    const MAPPING: u64 = 1 << 33;
    const BAD: u64 = 1 << 34;

    /// Reads the header's first word. (The second is the clock when the block was opened last.)
    pub(crate) const fn from_word(word: u64) -> Self {
        Self {
            erases: word as u32,
            in_use: word & Self::IN_USE != 0,
            mapping: word & Self::MAPPING != 0,
            bad: word & Self::BAD != 0,
        }
    }

    /// The header's first word.
    pub(crate) const fn word(self) -> u64 {
        self.erases as u64
            | if self.in_use { Self::IN_USE } else { 0 }
            | if self.mapping { Self::MAPPING } else { 0 }
            | if self.bad { Self::BAD } else { 0 }
    }
}

/// A trim record, in protected device memory until a mapping checkpoint holds what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct TrimRecord {
    /// First logical page.
    pub(crate) lpa: U32,
    /// Pages, at least one.
    pub(crate) pages: U32,
    /// The trim's number on the sequence clock: older contents and log entries are void.
    pub(crate) at: U64,
}
const _: () = assert!(size_of::<TrimRecord>() == 16);
/// Trim records that protected memory holds.
pub(crate) const TRIM_RECORDS: u64 = 4096;

/// What precedes the items of a mapping checkpoint's flash page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct MapPage {
    /// [`MapPage::MAGIC`].
    pub(crate) magic: U32,
    /// CRC-32C of the 24 bytes that follow and of the items.
    pub(crate) crc: U32,
    /// The checkpoint: the sequence clock when it began.
    pub(crate) generation: U64,
    /// This page's number in the checkpoint, from 0.
    pub(crate) position: U32,
    /// In the last page, how many pages the checkpoint has; in the others 0.
    pub(crate) total: U32,
    /// Bytes of items.
    pub(crate) bytes: U32,
    /// [`MapPage::LEAVES`] or [`MapPage::BLOCKS`].
    pub(crate) kind: U32,
}
const _: () = assert!(size_of::<MapPage>() == 32);

impl MapPage {
    /// First bytes of every page of a checkpoint.
    pub(crate) const MAGIC: u32 = 0x504d_434d;
    /// Items are leaves of the mapping table: number (8 B), presence (8 B, one bit an entry), and the word of
    /// each entry present.
    pub(crate) const LEAVES: u32 = 0;
    /// Items are numbers (4 B) of erase blocks that were being filled when the checkpoint began.
    pub(crate) const BLOCKS: u32 = 1;
    /// Bytes of items that fit a page.
    pub(crate) const ROOM: usize = PAGE as usize - size_of::<Self>();

    /// The checksum that belongs in `crc`.
    pub(crate) fn checksum(&self, items: &[u8]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&self.as_bytes()[8..]), items)
    }
}

/// Entries of a leaf of the mapping table, in device memory and in checkpoints.
pub(crate) const LEAF: u64 = 64;

/// A word of the mapping table: where a logical page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mapping {
    /// Never written: reads as zeros.
    Never,
    /// In this flash page.
    At(u64),
    /// Trimmed at this number of the sequence clock: zeros, and older log entries are void.
    Trimmed(u64),
}

impl Mapping {
    const TRIMMED: u64 = 1 << 63;

    /// Reads a table word. Flash pages are stored plus one, so that zero is "never".
    pub(crate) const fn from_word(word: u64) -> Self {
        if word == 0 {
            Self::Never
        } else if word & Self::TRIMMED != 0 {
            Self::Trimmed(word & !Self::TRIMMED)
        } else {
            Self::At(word - 1)
        }
    }

    /// The table word.
    pub(crate) const fn word(self) -> u64 {
        match self {
            Self::Never => 0,
            Self::At(page) => page + 1,
            Self::Trimmed(seq) => seq | Self::TRIMMED,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapping_words_round_trip() {
        for mapping in
            [Mapping::Never, Mapping::At(0), Mapping::At(1 << 40), Mapping::Trimmed(0), Mapping::Trimmed(9)]
        {
            assert_eq!(Mapping::from_word(mapping.word()), mapping);
        }
    }

    #[test]
    fn an_out_of_band_record_belongs_to_one_page() {
        let oob = Oob::new(5, 10, 11);
        assert!(oob.is_of(5) && !oob.is_of(6));
        assert!(!Oob { merged_to: U64::new(12), ..oob }.is_of(5));
        assert!(oob.moved().is_of(5) && oob.moved().order() > oob.order());
        assert!(oob.unreadable().is_of(5) && !oob.unreadable().is_readable());
        assert!(!Oob::spent().is_whole());
    }
}
