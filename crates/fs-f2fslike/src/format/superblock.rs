//! The superblock, and where it says that everything is.

use amphi_volume::{Error, Result, label_text, recognise};
use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{MAGIC, NAT_ENTRIES, PACK_PAGES, SEGMENT_BLOCKS_MAX, SIT_ENTRIES, TITLE, VERSION};

/// Longest label.
pub const LABEL_BYTES: usize = 32;

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
    /// What all blocks of this file system have in common.
    pub salt: U64,
    /// Creation time, ns since 1970.
    pub created_ns: I64,
    /// Random name of this file system.
    pub uuid: [u8; 16],
    /// Label, padded with NUL.
    pub label: [u8; LABEL_BYTES],
    /// Zero.
    pub reserved: [u8; 4],
    /// CRC-32C of all before.
    pub crc: U32,
}

const _: () = assert!(size_of::<Superblock>() == 96);

/// Where everything is, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Blocks of a segment.
    pub segment_blocks: u32,
    /// Segments.
    pub segments: u32,
    /// NAT blocks.
    pub nat_blocks: u32,
}

impl Layout {
    /// First page of a checkpoint pack, 0 or 1.
    #[must_use]
    pub const fn pack(&self, which: u64) -> u64 {
        1 + which * PACK_PAGES as u64
    }

    /// SIT blocks, each of which has two places.
    #[must_use]
    pub const fn sit_blocks(&self) -> u32 {
        self.segments.div_ceil(SIT_ENTRIES as u32)
    }

    /// First of the SIT's pages; block `n` has the pages `2 n` and `2 n + 1` from here.
    #[must_use]
    pub const fn sit_first(&self) -> u64 {
        self.pack(2)
    }

    /// First of the NAT's pages, as those of the SIT.
    #[must_use]
    pub const fn nat_first(&self) -> u64 {
        self.sit_first() + 2 * self.sit_blocks() as u64
    }

    /// First of the segment summaries, a page for each segment.
    #[must_use]
    pub const fn ssa_first(&self) -> u64 {
        self.nat_first() + 2 * self.nat_blocks as u64
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

    /// Pages of everything.
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

impl Superblock {
    /// CRC-32C of all but the checksum.
    #[must_use]
    pub fn checksum(&self) -> u32 {
        let bytes = self.as_bytes();
        crc32c::crc32c(&bytes[..bytes.len() - 4])
    }

    /// The label without padding.
    #[must_use]
    pub fn label(&self) -> String {
        label_text(&self.label)
    }

    /// Where everything is on a device of so many pages.
    ///
    /// # Errors
    /// What is wrong.
    pub fn layout(&self, pages: u64) -> Result<Layout> {
        let is_sealed = self.crc.get() == self.checksum();
        recognise(TITLE, self.magic == MAGIC, (self.version.get(), VERSION), is_sealed)?;
        let wrong = |why| Err(Error::Superblock { title: TITLE, why });
        let layout = Layout {
            segment_blocks: self.segment_blocks.get(),
            segments: self.segments.get(),
            nat_blocks: self.nat_blocks.get(),
        };
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
