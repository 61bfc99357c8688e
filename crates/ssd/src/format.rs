//! The image's bits: header, control words, log entries, out-of-band records, and where each region lies.
//!
//! Everything is little-endian with sizes asserted at compile time; `docs/format/ssd-image.md` draws it. Words marked *atomic* are
//! changed by one aligned store each, because the emulated firmware may die between any two instructions.

use std::mem::{offset_of, size_of};

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// First bytes of every image.
pub(crate) const MAGIC: [u8; 8] = *b"AMPHISSD";
/// The format this program writes and reads.
pub(crate) const VERSION: u32 = 2;
/// Bytes of a page of flash and of the host's address space.
pub(crate) const PAGE: u64 = 4096;
/// Bytes of a log line: entries start on and fill whole lines.
pub(crate) const LINE: u64 = 64;
/// Where the two identical copies of the header are.
pub(crate) const HEADER_AT: [u64; 2] = [0, PAGE];
/// Where the control words are.
pub(crate) const CONTROL_AT: u64 = 2 * PAGE;
/// Where the counters are.
pub(crate) const COUNTERS_AT: u64 = 3 * PAGE;
/// Room for the counters, in 8 B words.
pub(crate) const COUNTERS: usize = (PAGE / 8) as usize;
/// Where the profile's text is.
pub(crate) const PROFILE_AT: u64 = 4 * PAGE;
/// Room for the profile's text, in bytes.
pub(crate) const PROFILE_MAX: u64 = 12 * PAGE;
/// Most host-visible pages: 16 TiB, so that a page address fits 32 bits.
pub(crate) const MAX_CAPACITY_PAGES: u64 = u32::MAX as u64;

/// The header: what the device is. Written once; two copies.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Header {
    pub(crate) magic: [u8; 8],
    pub(crate) version: U32,
    pub(crate) header_bytes: U32,
    pub(crate) image_id: U64,
    pub(crate) created_ns: U64,
    pub(crate) capacity_pages: U64,
    pub(crate) blocks: U64,
    pub(crate) image_bytes: U64,
    pub(crate) profile_bytes: U32,
    pub(crate) profile_crc: U32,
    pub(crate) reserved: [u8; 60],
    /// CRC-32C of all bytes before it.
    pub(crate) crc: U32,
}
const _: () = assert!(size_of::<Header>() == 128);

impl Header {
    /// The checksum that belongs in `crc`.
    pub(crate) fn checksum(&self) -> u32 {
        crc32c::crc32c(&self.as_bytes()[..offset_of!(Self, crc)])
    }
}

/// The control words, each an atomic u64 at `CONTROL_AT + offset`.
#[repr(C)]
pub(crate) struct Control {
    /// Next number of the sequence clock that orders stores, commits, block writes and trims.
    pub(crate) clock: u64,
    /// The log region that takes appends: 0 or 1.
    pub(crate) active: u64,
    /// Bytes appended to each log region.
    pub(crate) tail: [u64; 2],
    /// Generation of each log region; its entries' checksums are salted with it.
    pub(crate) epoch: [u64; 2],
    /// The clock when `active` last changed.
    pub(crate) switched_at: u64,
    /// Transaction log: entries ever trimmed and ever appended.
    pub(crate) txlog_head: u64,
    pub(crate) txlog_tail: u64,
    /// How often the device was powered up.
    pub(crate) power_ups: u64,
    /// How the last session ended: a [`crate::info::Shutdown`].
    pub(crate) shutdown: u64,
    /// Trim records: ever dropped (a checkpoint holds them) and ever appended.
    pub(crate) trim_head: u64,
    pub(crate) trim_tail: u64,
    /// Generation of the newest complete mapping checkpoint, or 0.
    pub(crate) checkpoint: u64,
}
const _: () = assert!(size_of::<Control>() == 112);

/// Address of a control word in the image.
macro_rules! control {
    ($field:ident) => {
        $crate::format::CONTROL_AT + std::mem::offset_of!($crate::format::Control, $field) as u64
    };
    ($field:ident[$index:expr]) => {
        $crate::format::CONTROL_AT
            + std::mem::offset_of!($crate::format::Control, $field) as u64
            + 8 * ($index as u64)
    };
}
pub(crate) use control;

/// What precedes the data of every entry of the write log. The entry fills whole 64 B lines.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct EntryHeader {
    /// CRC-32C of the region's salt and the 28 bytes that follow. Written with the rest: an entry exists when it matches.
    pub(crate) crc: U32,
    /// Transaction, or 0.
    pub(crate) tx: U32,
    /// The store's number on the sequence clock.
    pub(crate) seq: U64,
    /// Logical page.
    pub(crate) lpa: U32,
    /// First byte within the page.
    pub(crate) offset: U16,
    /// Bytes of data, 1 to 4096.
    pub(crate) len: U16,
    /// CRC-32C of the data.
    pub(crate) data_crc: U32,
    /// The [`amphi_device::Structure`] that the store serves.
    pub(crate) tag: u8,
    pub(crate) reserved: [u8; 3],
}
const _: () = assert!(size_of::<EntryHeader>() == 32);
/// Bytes of an entry header.
pub(crate) const ENTRY_HEADER: u64 = size_of::<EntryHeader>() as u64;

impl EntryHeader {
    /// The checksum that belongs in `crc`, in a region with this salt.
    pub(crate) fn checksum(&self, salt: u64) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&salt.to_le_bytes()), &self.as_bytes()[4..])
    }

    /// Bytes of the whole entry for `len` bytes of data.
    pub(crate) const fn entry_bytes(len: u64) -> u64 {
        (ENTRY_HEADER + len).next_multiple_of(LINE)
    }
}

/// The out-of-band record of a flash page, next to its data: what the mapping is rebuilt from.
///
/// Every record is of a page that was current once. Of several of one logical page, that with the greatest [`order`](Oob::order) is
/// current, unless a later trim says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Oob {
    /// [`Oob::PROGRAMMED`] once the page is programmed, [`Oob::UNREADABLE`] once ECC has given its data up, 0 when erased.
    pub(crate) mark: U32,
    /// The logical page whose contents these are; [`Oob::NOT_DATA`] in mapping checkpoints.
    pub(crate) lpa: U32,
    /// Log entries of the page whose store number is at or below this are void: a block write replaced them.
    pub(crate) written_at: U64,
    /// Log entries whose commit (or, without transaction, store) number is at or below this are contained in the page.
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

/// The record of a frame of the page cache, two atomic words. Only a dirty frame has one that is not all zeros.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct CacheRecord {
    /// When the frame became dirty, on the sequence clock. Written first.
    pub(crate) seq: U64,
    /// [`CacheRecord::DIRTY`] and the logical page; 0 if the frame holds nothing that flash does not.
    pub(crate) holds: U64,
}
const _: () = assert!(size_of::<CacheRecord>() == 16);

impl CacheRecord {
    /// Offset of `seq`.
    pub(crate) const SEQ: u64 = offset_of!(Self, seq) as u64;
    /// Offset of `holds`.
    pub(crate) const HOLDS: u64 = offset_of!(Self, holds) as u64;
    /// Says that the frame is dirty.
    const DIRTY: u64 = 1 << 32;

    /// The word of a dirty frame that holds a page.
    pub(crate) const fn holds(lpa: u64) -> u64 {
        lpa | Self::DIRTY
    }

    /// The page that a dirty frame's word names, if it is such a word.
    pub(crate) const fn held(word: u64) -> Option<u64> {
        if word >> 32 == 1 { Some(word & 0xffff_ffff) } else { None }
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
    /// Items are leaves of the mapping table: number (8 B), presence (8 B, one bit an entry), and the word of each entry present.
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

/// Where every region lies, computed from a few sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) capacity_pages: u64,
    pub(crate) blocks: u64,
    pub(crate) pages_per_block: u64,
    pub(crate) partition_pages: u64,
    pub(crate) partitions: u64,
    pub(crate) region_bytes: u64,
    pub(crate) txlog_entries: u64,
    /// 4 B transaction numbers, in commit order.
    pub(crate) txlog_ids: u64,
    /// 8 B sequence-clock numbers of the same commits.
    pub(crate) txlog_clock: u64,
    pub(crate) log: [u64; 2],
    /// Trim records: a ring.
    pub(crate) trims: u64,
    /// Frames of the page cache; none where the firmware keeps a write log.
    pub(crate) cache_frames: u64,
    pub(crate) cache_records: u64,
    pub(crate) cache: u64,
    pub(crate) block_headers: u64,
    pub(crate) oob: u64,
    pub(crate) flash: u64,
    pub(crate) image_bytes: u64,
}

impl Layout {
    /// Lays out a device of `capacity_pages` with `blocks` erase blocks. All inputs are within the ranges that
    /// [`crate::Profile::check`] and [`MAX_CAPACITY_PAGES`] set, so nothing here overflows.
    pub(crate) fn new(profile: &crate::Profile, capacity_pages: u64, blocks: u64) -> Self {
        fn place(next: &mut u64, bytes: u64) -> u64 {
            let at = *next;
            *next = (at + bytes).next_multiple_of(64 * 1024);
            at
        }
        let partition_pages = profile.log.partition_bytes / PAGE;
        let partitions = capacity_pages.div_ceil(partition_pages);
        let txlog_entries = profile.log.txlog_bytes / 4;
        let pages = blocks * profile.flash.pages_per_block;
        let cache_frames = profile.firmware.cache_frames();
        let mut next = PROFILE_AT + PROFILE_MAX;
        let next = &mut next;
        let mut layout = Self {
            capacity_pages,
            blocks,
            pages_per_block: profile.flash.pages_per_block,
            partition_pages,
            partitions,
            region_bytes: profile.log.region_bytes,
            txlog_entries,
            txlog_ids: place(next, txlog_entries * 4),
            txlog_clock: place(next, txlog_entries * 8),
            log: [place(next, profile.log.region_bytes), place(next, profile.log.region_bytes)],
            trims: place(next, TRIM_RECORDS * size_of::<TrimRecord>() as u64),
            cache_frames,
            cache_records: place(next, cache_frames * size_of::<CacheRecord>() as u64),
            cache: place(next, cache_frames * PAGE),
            block_headers: place(next, blocks * BLOCK_HEADER_BYTES),
            oob: place(next, pages * OOB_BYTES),
            flash: place(next, pages * PAGE),
            image_bytes: 0,
        };
        layout.image_bytes = *next;
        layout
    }

    /// Erase blocks for a new device: over-provisioning, at least enough that a small device too can write to all of its
    /// dies at once, and room for mapping checkpoints.
    pub(crate) fn blocks_for(profile: &crate::Profile, capacity_pages: u64) -> u64 {
        let host = capacity_pages.div_ceil(profile.flash.pages_per_block);
        let dies = profile.flash.channels * profile.flash.ways * profile.media.planes;
        let spare = (host * profile.flash.over_provisioning_percent).div_ceil(100);
        let mapping = Self::mapping_blocks(profile.flash.pages_per_block, capacity_pages);
        host + spare.max(MIN_SPARE_BLOCKS + 2 * dies) + mapping
    }

    /// Whether a device of this capacity may have this many erase blocks.
    pub(crate) fn blocks_fit(profile: &crate::Profile, capacity_pages: u64, blocks: u64) -> bool {
        let host = capacity_pages.div_ceil(profile.flash.pages_per_block);
        let mapping = Self::mapping_blocks(profile.flash.pages_per_block, capacity_pages);
        (host + mapping + MIN_SPARE_BLOCKS..=2 * host + 65_536).contains(&blocks)
    }

    /// Erase blocks that mapping checkpoints may take: two generations of the largest, and one more for its list of blocks.
    pub(crate) const fn mapping_blocks(pages_per_block: u64, capacity_pages: u64) -> u64 {
        let leaves = capacity_pages.div_ceil(LEAF);
        let pages = leaves.div_ceil(MapPage::ROOM as u64 / (16 + 8 * LEAF)) + 3;
        2 * pages.div_ceil(pages_per_block) + 1
    }

    /// Flash pages.
    pub(crate) const fn flash_pages(&self) -> u64 {
        self.blocks * self.pages_per_block
    }

    /// Address of an erase block's header.
    pub(crate) const fn block_header(&self, block: u64) -> u64 {
        self.block_headers + block * BLOCK_HEADER_BYTES
    }

    /// Address of the slot of the n-th trim record.
    pub(crate) const fn trim_record(&self, number: u64) -> u64 {
        self.trims + number % TRIM_RECORDS * size_of::<TrimRecord>() as u64
    }

    /// Address of a cache frame's record.
    pub(crate) const fn cache_record(&self, frame: u32) -> u64 {
        self.cache_records + frame as u64 * size_of::<CacheRecord>() as u64
    }

    /// Address of a cache frame's page.
    pub(crate) const fn cache_frame(&self, frame: u32) -> u64 {
        self.cache + frame as u64 * PAGE
    }

    /// Address of a flash page's data.
    pub(crate) const fn flash_page(&self, page: u64) -> u64 {
        self.flash + page * PAGE
    }

    /// Address of a flash page's out-of-band record.
    pub(crate) const fn oob_record(&self, page: u64) -> u64 {
        self.oob + page * OOB_BYTES
    }
}

/// Fewest erase blocks beyond the host's capacity: what garbage collection and the write points need to keep going.
pub(crate) const MIN_SPARE_BLOCKS: u64 = 16;

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
    fn an_entry_of_another_epoch_fails_its_checksum() {
        let mut header = EntryHeader {
            crc: U32::ZERO,
            tx: U32::new(7),
            seq: U64::new(1),
            lpa: U32::new(3),
            offset: U16::new(64),
            len: U16::new(64),
            data_crc: U32::new(1),
            tag: 2,
            reserved: [0; 3],
        };
        header.crc = U32::new(header.checksum(1));
        assert_eq!(header.crc.get(), header.checksum(1));
        assert_ne!(header.crc.get(), header.checksum(2));
        assert_eq!(EntryHeader::entry_bytes(32), 64);
        assert_eq!(EntryHeader::entry_bytes(64), 128);
        assert_eq!(EntryHeader::entry_bytes(256), 320);
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

    #[test]
    fn regions_do_not_overlap() {
        let profile = crate::Profile::named("mssd-pcie3").expect("valid");
        let layout = Layout::new(&profile, 1 << 20, Layout::blocks_for(&profile, 1 << 20));
        let mut starts = vec![
            layout.txlog_ids,
            layout.txlog_clock,
            layout.log[0],
            layout.log[1],
            layout.trims,
            layout.block_headers,
            layout.oob,
            layout.flash,
            layout.image_bytes,
        ];
        assert!(starts.is_sorted());
        starts.dedup();
        assert_eq!(starts.len(), 9);
        assert_eq!(layout.image_bytes - layout.flash, layout.flash_pages() * PAGE);
    }
}
