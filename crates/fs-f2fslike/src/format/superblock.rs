//! The superblock, and where it says that everything is.

use std::ops::Deref;

use amphi_segments::format::{Areas, Origin};
use amphi_volume::{Error, Result, recognise};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{MAGIC, PACK_PAGES, SEGMENT_BLOCKS_MAX, SIT_ENTRIES, TITLE, VERSION};

/// Page 0.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Superblock {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: U32,
    /// Blocks of a segment, a power of two.
    pub segment_blocks: U32,
    /// Segments of the main area.
    pub segments: U32,
    /// NAT blocks, each of which has two places.
    pub nat_blocks: U32,
    /// What it and its blocks are known by.
    pub origin: Origin,
    /// Zero.
    pub reserved: [u8; 4],
    /// CRC-32C of all before.
    pub crc: U32,
}

const _: () = assert!(size_of::<Superblock>() == 96);

/// Where everything is, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout(Areas);

impl Deref for Layout {
    type Target = Areas;

    fn deref(&self) -> &Areas {
        &self.0
    }
}

impl Layout {
    /// That with so many blocks in a segment, so many segments, and NAT blocks.
    #[must_use]
    pub const fn new(segment_blocks: u32, segments: u32, nat_blocks: u32) -> Self {
        let sit_blocks = segments.div_ceil(SIT_ENTRIES as u32);
        let nat_first = Self::SIT_FIRST + 2 * sit_blocks as u64;
        Self(Areas { nat_first, nat_blocks, segments, segment_blocks })
    }

    /// First of the SIT's pages; block `n` has the pages `2 n` and `2 n + 1` from here.
    pub const SIT_FIRST: u64 = Self::pack(2);

    /// First page of a checkpoint pack, 0 or 1.
    #[must_use]
    pub const fn pack(which: u64) -> u64 {
        1 + which * PACK_PAGES as u64
    }

    /// SIT blocks, each of which has two places.
    #[must_use]
    pub const fn sit_blocks(&self) -> u32 {
        self.0.segments.div_ceil(SIT_ENTRIES as u32)
    }
}

impl Superblock {
    /// CRC-32C of all but the checksum.
    #[must_use]
    pub fn checksum(&self) -> u32 {
        let bytes = self.as_bytes();
        crc32c::crc32c(&bytes[..bytes.len() - 4])
    }

    /// Where everything is on a device of so many pages.
    ///
    /// # Errors
    /// What is wrong.
    pub fn layout(&self, pages: u64) -> Result<Layout> {
        let is_sealed = self.crc.get() == self.checksum();
        recognise(TITLE, self.magic == MAGIC, (self.version.get(), VERSION), is_sealed)?;
        let wrong = |why| Err(Error::Superblock { title: TITLE, why });
        let layout = Layout::new(self.segment_blocks.get(), self.segments.get(), self.nat_blocks.get());
        let blocks = layout.segment_blocks as usize;
        if !blocks.is_power_of_two() || !(8..=SEGMENT_BLOCKS_MAX).contains(&blocks) {
            return wrong("a segment has an impossible size");
        }
        if layout.segments == 0 || layout.nat_blocks == 0 || layout.nat_blocks > u32::MAX / 2048 {
            return wrong("there are no segments, or no nodes");
        }
        if layout.main_blocks() > u64::from(u32::MAX - 2) || layout.pages() > pages {
            return wrong("it is larger than the device");
        }
        Ok(layout)
    }
}
