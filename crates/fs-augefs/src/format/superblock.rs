//! The superblock, and where it says that everything is.

use std::ops::Deref;

use amphi_segments::format::{Areas, Origin};
use amphi_volume::{Error, Result, recognise};
use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{
    DOMAINS_MAX, MAGIC, NAT_ENTRIES, PAGE, SEGMENT_BLOCKS_MAX, TITLE, VERSION, WRITE_VERSION_BYTES,
    WRITE_VERSIONS,
};

/// Page 0 of the block side.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Superblock {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: U32,
    /// Domains.
    pub domains: U32,
    /// Blocks of a segment, a power of two.
    pub segment_blocks: U32,
    /// Segments of the main area.
    pub segments: U32,
    /// NAT blocks, each of which has two places.
    pub nat_blocks: U32,
    /// Pages of the metadata store.
    pub meta_pages: U32,
    /// Bytes of the memory area: the log of the metadata store, then the write versions.
    pub memory_bytes: U64,
    /// What it and its blocks are known by.
    pub origin: Origin,
    /// Zero.
    pub reserved: [u8; 20],
    /// CRC-32C of all before.
    pub crc: U32,
}

const _: () = assert!(size_of::<Superblock>() == 128);

/// What changes of the superblock, in the last line of the memory area: for people, and not for recovery.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SuperState {
    /// How often it was mounted.
    pub mounts: U64,
    /// Time of the last mount, ns since 1970; 0: never.
    pub mounted_ns: I64,
    /// 1 after a clean unmount.
    pub clean: U64,
}

/// Where everything is, in pages of the block side and bytes of the memory area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Domains.
    pub domains: u32,
    /// Pages of the metadata store, from page 1 on.
    pub meta_pages: u32,
    /// Bytes of the memory area.
    pub memory_bytes: u64,
    /// NAT, summaries and segments, behind the metadata store.
    pub areas: Areas,
}

impl Deref for Layout {
    type Target = Areas;

    fn deref(&self) -> &Areas {
        &self.areas
    }
}

impl Layout {
    /// First page of the metadata store.
    pub const META_FIRST: u64 = 1;

    /// Bytes of the metadata store's log, from the start of the memory area.
    #[must_use]
    pub const fn log_bytes(&self) -> u64 {
        self.memory_bytes - (WRITE_VERSIONS as u64 + 1) * WRITE_VERSION_BYTES
    }

    /// Where in the memory area the [`SuperState`] is.
    #[must_use]
    pub const fn state(&self) -> u64 {
        self.write_version(WRITE_VERSIONS)
    }

    /// Where in the memory area a processor's write version is.
    #[must_use]
    pub const fn write_version(&self, processor: usize) -> u64 {
        self.log_bytes() + processor as u64 * WRITE_VERSION_BYTES
    }
}

impl Superblock {
    /// The checksum that the rest asks for.
    #[must_use]
    pub fn checksum(&self) -> u32 {
        crc32c::crc32c(&self.as_bytes()[..size_of::<Self>() - 4])
    }

    /// The layout, if this is a superblock and fits a device of so many pages and bytes of memory.
    ///
    /// # Errors
    /// [`Error::NotThis`], [`Error::Version`], [`Error::Superblock`].
    pub fn layout(&self, pages: u64, memory: u64) -> Result<Layout> {
        let is_sealed = self.crc.get() == self.checksum();
        recognise(TITLE, self.magic == MAGIC, (self.version.get(), VERSION), is_sealed)?;
        let wrong = |why| Err(Error::Superblock { title: TITLE, why });
        let meta_pages = self.meta_pages.get();
        let layout = Layout {
            domains: self.domains.get(),
            meta_pages,
            memory_bytes: self.memory_bytes.get(),
            areas: Areas {
                nat_first: Layout::META_FIRST + u64::from(meta_pages),
                nat_blocks: self.nat_blocks.get(),
                segments: self.segments.get(),
                segment_blocks: self.segment_blocks.get(),
            },
        };
        let segment = layout.segment_blocks as usize;
        let sound = (1..=DOMAINS_MAX).contains(&layout.domains)
            && segment.is_power_of_two()
            && (8..=SEGMENT_BLOCKS_MAX).contains(&segment)
            && layout.memory_bytes >= 4 * PAGE as u64
            && layout.memory_bytes.is_multiple_of(PAGE as u64)
            && layout.main_blocks() < u64::from(u32::MAX) - 2
            && u64::from(layout.nat_blocks) * (NAT_ENTRIES as u64) < u64::from(u32::MAX);
        if !sound {
            return wrong("its areas have impossible sizes");
        }
        if layout.pages() > pages || layout.memory_bytes > memory {
            return wrong("the device is smaller than the file system");
        }
        Ok(layout)
    }
}
