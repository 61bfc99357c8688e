//! The superblock's two parts.

use amphi_volume::{Error, Result, label_text, recognise};
use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, MAGIC, TITLE, VERSION};

/// Longest label.
pub const LABEL_BYTES: usize = 32;
/// Longest text of mount options in the superblock.
pub const OPTION_BYTES: usize = 96;

/// The unchanging part: page 0, offset 0.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Superblock {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: U32,
    /// Bytes of a data block, a power of two.
    pub block_bytes: U32,
    /// Bytes of the memory area that the file system takes.
    pub memory_bytes: U64,
    /// Data blocks.
    pub blocks: U32,
    /// Inodes, number 0 included.
    pub inodes: U32,
    /// Metadata pages.
    pub meta_pages: U32,
    /// Leaves of data logs.
    pub leaves: U32,
    /// Log pages.
    pub log_pages: U32,
    /// Lanes of the journal.
    pub lanes: U32,
    /// Bytes of a lane.
    pub lane_bytes: U32,
    /// Data blocks that it can grow to; 0: no more than it has.
    pub blocks_max: U32,
    /// Creation time, ns since 1970.
    pub created_ns: I64,
    /// Random name of this file system.
    pub uuid: [u8; 16],
    /// Label, padded with NUL.
    pub label: [u8; LABEL_BYTES],
    /// Mount options that hold unless a mount says otherwise, as text, padded with NUL.
    pub options: [u8; OPTION_BYTES],
    /// Zero.
    pub reserved: [u8; 44],
    /// CRC-32C of all before.
    pub crc: U32,
}

const _: () = assert!(size_of::<Superblock>() == 256);

/// The changing part: page 0, offset 512, one line.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SuperState {
    /// How often it was mounted.
    pub mounts: U64,
    /// Time of the last mount, ns since 1970.
    pub mounted_ns: I64,
    /// Time of the last clean unmount, ns since 1970.
    pub unmounted_ns: I64,
    /// 1 after a clean unmount, 0 while mounted.
    pub clean: U64,
}

impl Superblock {
    /// The checksum that the rest asks for.
    #[must_use]
    pub fn checksum(&self) -> u32 {
        crc32c::crc32c(&self.as_bytes()[..size_of::<Self>() - 4])
    }

    /// Whether it is one of this version, and means something.
    ///
    /// # Errors
    /// [`Error::NotThis`], [`Error::Version`], [`Error::Superblock`].
    pub fn check(&self) -> Result<()> {
        let is_sealed = self.crc.get() == self.checksum();
        recognise(TITLE, self.magic == MAGIC, (self.version.get(), VERSION), is_sealed)?;
        let block = u64::from(self.block_bytes.get());
        if !block.is_power_of_two() || !(BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&block) {
            return Err(Error::Superblock { title: TITLE, why: "its data blocks have an impossible size" });
        }
        Ok(())
    }

    /// Label without padding.
    #[must_use]
    pub fn label(&self) -> String {
        label_text(&self.label)
    }

    /// Mount options without padding.
    #[must_use]
    pub fn options(&self) -> String {
        label_text(&self.options)
    }
}
