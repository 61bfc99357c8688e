//! The superblock's two parts.

use amphi_volume::label_text;
use zerocopy::little_endian::{I64, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{FormatError, LABEL_BYTES, LINE, Layout, MAGIC, PAGE, SUPER_STATE_OFFSET, VERSION};

/// Longest text of mount options in the superblock.
pub const OPTION_BYTES: usize = 96;

/// The unchanging part of the superblock: page 0, offset 0.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Superblock {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: U32,
    /// [`PAGE`].
    pub page_bytes: U32,
    /// Pages of the file system, all metadata included.
    pub pages: U64,
    /// Inodes, number 0 included.
    pub inodes: U32,
    /// Inodes of each allocation group.
    pub ag_inodes: U32,
    /// First page of the orphan table.
    pub orphans: U32,
    /// First page of the data journal.
    pub journal: U32,
    /// Pages of the data journal, its page of slots included; 0: there is none.
    pub journal_pages: U32,
    /// First page of the first allocation group's header.
    pub first_header: U32,
    /// Creation time, ns since 1970.
    pub created_ns: I64,
    /// Random name of this file system.
    pub uuid: [u8; 16],
    /// Label, padded with NUL.
    pub label: [u8; LABEL_BYTES],
    /// Mount options that hold unless a mount says otherwise (`amphi tune -o`), as text, padded with NUL.
    pub options: [u8; OPTION_BYTES],
    /// Zero.
    pub reserved: [u8; 52],
    /// CRC-32C of all before.
    pub crc: U32,
}

/// The changing part of the superblock, one line: page 0, offset 256.
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
    pub clean: U32,
    /// Zero.
    pub reserved: [u8; 32],
    /// CRC-32C of all before.
    pub crc: U32,
}

const _: () = assert!(size_of::<Superblock>() == SUPER_STATE_OFFSET);
const _: () = assert!(size_of::<SuperState>() == LINE);

impl Superblock {
    /// Reads page 0 and checks every field against the others and against the device's size.
    ///
    /// # Errors
    /// The first thing found wrong.
    pub fn decode(page: &[u8; PAGE], device_pages: u64) -> Result<Self, FormatError> {
        let (sb, _) = Self::read_from_prefix(page).map_err(|_| FormatError::NotByteFs)?;
        if sb.magic != MAGIC {
            return Err(FormatError::NotByteFs);
        }
        if sb.version.get() != VERSION {
            return Err(FormatError::Version(sb.version.get()));
        }
        if sb.crc.get() != sb.checksum() {
            return Err(FormatError::Checksum("the superblock"));
        }
        let what = "the superblock";
        if sb.page_bytes.get() as usize != PAGE {
            return Err(FormatError::Field(what, "page size"));
        }
        if sb.pages.get() > device_pages {
            return Err(FormatError::Field(what, "size"));
        }
        sb.layout().check()?;
        Ok(sb)
    }

    /// The checksum that belongs into `crc`.
    #[must_use]
    pub fn checksum(&self) -> u32 {
        let bytes = self.as_bytes();
        crc32c::crc32c(&bytes[..bytes.len() - 4])
    }

    /// The layout that it says.
    #[must_use]
    pub fn layout(&self) -> Layout {
        Layout {
            pages: self.pages.get(),
            inodes: self.inodes.get(),
            ag_inodes: self.ag_inodes.get(),
            orphans: self.orphans.get(),
            journal: self.journal.get(),
            journal_pages: self.journal_pages.get(),
            first_header: self.first_header.get(),
        }
    }

    /// Takes over a layout.
    pub fn set_layout(&mut self, layout: &Layout) {
        self.pages = layout.pages.into();
        self.inodes = layout.inodes.into();
        self.ag_inodes = layout.ag_inodes.into();
        self.orphans = layout.orphans.into();
        self.journal = layout.journal.into();
        self.journal_pages = layout.journal_pages.into();
        self.first_header = layout.first_header.into();
    }

    /// The mount options without their padding.
    #[must_use]
    pub fn option_text(&self) -> String {
        label_text(&self.options)
    }

    /// The label without its padding.
    #[must_use]
    pub fn label_text(&self) -> String {
        label_text(&self.label)
    }
}

impl SuperState {
    /// Reads the line; a damaged one reads as "never mounted, not clean".
    #[must_use]
    pub fn decode(page: &[u8; PAGE]) -> Self {
        let line = &page[SUPER_STATE_OFFSET..SUPER_STATE_OFFSET + LINE];
        match Self::read_from_bytes(line) {
            Ok(state) if state.crc.get() == state.checksum() => state,
            _ => Self::new_zeroed_state(),
        }
    }

    fn new_zeroed_state() -> Self {
        Self {
            mounts: U64::ZERO,
            mounted_ns: I64::ZERO,
            unmounted_ns: I64::ZERO,
            clean: U32::ZERO,
            reserved: [0; 32],
            crc: U32::ZERO,
        }
    }

    /// The line with its checksum.
    #[must_use]
    pub fn encode(mut self) -> [u8; LINE] {
        self.crc = self.checksum().into();
        zerocopy::transmute!(self)
    }

    fn checksum(&self) -> u32 {
        crc32c::crc32c(&self.as_bytes()[..LINE - 4])
    }
}
