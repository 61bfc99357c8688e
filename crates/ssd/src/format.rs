//! The image's bits: header, control words, log entries, out-of-band records, and where each region lies.
//!
//! Everything is little-endian with sizes asserted at compile time; `docs/format/ssd-image.md` draws it.
//! Words marked *atomic* are changed by one aligned store each, because the emulated firmware may die between
//! any two instructions.

use std::mem::{offset_of, size_of};

use amphi_device::{Entry, EntryId, Lpa};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

mod flash;

pub(crate) use flash::{
    BLOCK_HEADER_BYTES, BlockHeader, LEAF, MapPage, Mapping, OOB_BYTES, Oob, TRIM_RECORDS, TrimRecord,
};

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
    /// Not used: older firmware noted here when `active` last changed.
    pub(crate) reserved: u64,
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
    /// CRC-32C of the region's salt and the 28 bytes that follow. Written with the rest: an entry exists when
    /// it matches.
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

/// The record of a frame of the page cache, two atomic words. Only a dirty frame has one that is not all
/// zeros.
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

/// A place of the table of pins. The last word is written last, and alone when the entry goes.
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct PinRecord {
    /// The host's name for the entry.
    pub(crate) id: U64,
    /// First byte of the window.
    pub(crate) offset: U64,
    /// First logical page.
    pub(crate) at: U64,
    /// Pages; 0 if the place is free.
    pub(crate) pages: U64,
}
const _: () = assert!(size_of::<PinRecord>() == 32);

impl PinRecord {
    /// Its size.
    pub(crate) const BYTES: u64 = size_of::<Self>() as u64;
    /// Offset of `id`.
    pub(crate) const ID: u64 = offset_of!(Self, id) as u64;
    /// Offset of `offset`.
    pub(crate) const OFFSET: u64 = offset_of!(Self, offset) as u64;
    /// Offset of `at`.
    pub(crate) const AT: u64 = offset_of!(Self, at) as u64;
    /// Offset of `pages`.
    pub(crate) const PAGES: u64 = offset_of!(Self, pages) as u64;

    /// The entry that it is, if it lies inside the window and the device.
    pub(crate) fn entry(&self, layout: &Layout) -> Option<Entry> {
        let (offset, at, pages) = (self.offset.get(), self.at.get(), self.pages.get());
        let inside = pages > 0
            && pages <= layout.memory_bytes / PAGE
            && offset.is_multiple_of(PAGE)
            && offset <= layout.memory_bytes - pages * PAGE
            && at.checked_add(pages).is_some_and(|end| end <= layout.capacity_pages);
        let id = u32::try_from(self.id.get()).ok()?;
        inside.then_some(Entry { id: EntryId(id), offset, at: Lpa(at), pages })
    }
}

/// Says, in the first word of the dump's head, that the dump is whole. The low half is then the CRC-32C of
/// the dumped table and of the used chunks.
pub(crate) const DUMP_WHOLE: u64 = 1 << 32;
/// Where in the dump's head the table is.
pub(crate) const DUMP_TABLE: u64 = LINE;

/// Bytes of the dump's head: its word, and the table.
pub(crate) const fn dump_head_bytes(entries: u64) -> u64 {
    if entries == 0 { 0 } else { DUMP_TABLE + entries * PinRecord::BYTES }
}

/// Bytes of a chunk of the memory area, for which the image has room or has not: one bit of its map.
pub(crate) const MEMORY_CHUNK: u64 = 256 << 10;

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
    /// Bytes of the memory area or the BA-buffer; none with another firmware.
    pub(crate) memory_bytes: u64,
    /// One bit a chunk of the memory area: whether it was ever stored to.
    pub(crate) memory_map: u64,
    pub(crate) memory: u64,
    /// Places of the table of pins; none without a BA-buffer.
    pub(crate) pin_entries: u64,
    pub(crate) pins: u64,
    /// Reserved flash for the dump: its head, and as much as the buffer has.
    pub(crate) dump_head: u64,
    pub(crate) dump: u64,
    pub(crate) block_headers: u64,
    pub(crate) oob: u64,
    pub(crate) flash: u64,
    pub(crate) image_bytes: u64,
}

impl Layout {
    /// Lays out a device of `capacity_pages` with `blocks` erase blocks. All inputs are within the ranges
    /// that [`crate::Profile::check`] and [`MAX_CAPACITY_PAGES`] set, so nothing here overflows.
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
        let memory_bytes = profile.window_bytes();
        let pin_entries = profile.pin_entries();
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
            memory_bytes,
            memory_map: place(next, memory_bytes.div_ceil(MEMORY_CHUNK * 64) * 8),
            memory: place(next, memory_bytes),
            pin_entries,
            pins: place(next, pin_entries * PinRecord::BYTES),
            dump_head: place(next, dump_head_bytes(pin_entries)),
            dump: place(next, if pin_entries == 0 { 0 } else { memory_bytes }),
            block_headers: place(next, blocks * BLOCK_HEADER_BYTES),
            oob: place(next, pages * OOB_BYTES),
            flash: place(next, pages * PAGE),
            image_bytes: 0,
        };
        layout.image_bytes = *next;
        layout
    }

    /// Erase blocks for a new device: over-provisioning, at least enough that a small device too can write to
    /// all of its dies at once, and room for mapping checkpoints.
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

    /// Erase blocks that mapping checkpoints may take: two generations of the largest, and one more for its
    /// list of blocks.
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

    /// Chunks of the memory area.
    pub(crate) const fn memory_chunks(&self) -> u64 {
        self.memory_bytes.div_ceil(MEMORY_CHUNK)
    }

    /// First byte and length of a chunk of the memory area, of which the last may be short.
    pub(crate) fn memory_chunk(&self, chunk: u64) -> (u64, u64) {
        let from = chunk * MEMORY_CHUNK;
        (from, MEMORY_CHUNK.min(self.memory_bytes - from))
    }

    /// Address of the word of the memory area's map that has a chunk's bit.
    pub(crate) const fn memory_map_word(&self, chunk: u64) -> u64 {
        self.memory_map + chunk / 64 * 8
    }

    /// Address of a place of the table of pins.
    pub(crate) const fn pin_record(&self, number: u64) -> u64 {
        self.pins + number * PinRecord::BYTES
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

/// Fewest erase blocks beyond the host's capacity: what garbage collection and the write points need to keep
/// going.
pub(crate) const MIN_SPARE_BLOCKS: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;

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
