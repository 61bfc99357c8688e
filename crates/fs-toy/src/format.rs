//! What is on the device: a superblock in page 0, and two halves behind it. One half holds the log: records,
//! each from the start of a page. The first one holds the whole map. docs/format/toy.md describes the bits.

use amphi_device::PAGE_BYTES;
use amphi_volume::{Error, Result, label_text, recognise};
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What a superblock starts with.
pub const MAGIC: [u8; 8] = *b"AMPHITOY";
/// What it is called in sentences.
pub const TITLE: &str = "the toy";
/// The only version.
pub const VERSION: u32 = 1;
/// Most bytes of a label.
pub const LABEL_BYTES: usize = 32;
/// Fewest pages of a device.
pub const PAGES_MIN: u64 = 64;

/// Page 0.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Superblock {
    pub magic: [u8; 8],
    pub version: U32,
    /// CRC-32C of the superblock with this field 0.
    pub crc: U32,
    /// Counts the times that the log began anew, from a number of chance on; the half is the lowest bit.
    pub generation: U64,
    /// Pages of the file system.
    pub pages: U64,
    pub mounts: U64,
    /// 1 if the last mount ended with an unmount.
    pub clean: U64,
    pub uuid: [u8; 16],
    pub label: [u8; LABEL_BYTES],
}
const _: () = assert!(size_of::<Superblock>() == 96);

/// The start of a record. Behind it are updates, as `postcard` writes them.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RecordHeader {
    /// The superblock's generation: what has another is not of this log.
    pub generation: U64,
    /// Its number in the log.
    pub number: U64,
    /// Bytes behind the header.
    pub bytes: U32,
    /// CRC-32C of the header with this field 0, and of what is behind it.
    pub crc: U32,
}
const _: () = assert!(size_of::<RecordHeader>() == 24);

impl Superblock {
    fn checksum(&self) -> u32 {
        crc32c::crc32c(Self { crc: 0.into(), ..*self }.as_bytes())
    }

    /// As page 0 holds it.
    pub fn encode(&self) -> [u8; PAGE_BYTES] {
        let mut page = [0; PAGE_BYTES];
        let sealed = Self { crc: self.checksum().into(), ..*self };
        page[..size_of::<Self>()].copy_from_slice(sealed.as_bytes());
        page
    }

    /// Reads page 0 of a device of `device_pages` pages.
    ///
    /// # Errors
    /// [`Error::NotThis`], [`Error::Version`], [`Error::Superblock`].
    pub fn decode(page: &[u8; PAGE_BYTES], device_pages: u64) -> Result<Self> {
        let (sb, _) = Self::read_from_prefix(page).map_err(|_| Error::NotThis { title: TITLE })?;
        recognise(TITLE, sb.magic == MAGIC, (sb.version.get(), VERSION), sb.crc.get() == sb.checksum())?;
        if (PAGES_MIN..=device_pages).contains(&sb.pages.get()) {
            return Ok(sb);
        }
        Err(Error::Superblock { title: TITLE, why: "it has an impossible size" })
    }

    /// The label.
    pub fn label(&self) -> String {
        label_text(&self.label)
    }

    /// Pages of a half.
    pub const fn half_pages(pages: u64) -> u64 {
        (pages - 1) / 2
    }
}

impl RecordHeader {
    /// The checksum of a record.
    pub fn checksum(&self, body: &[u8]) -> u32 {
        let header = Self { crc: 0.into(), ..*self };
        crc32c::crc32c_append(crc32c::crc32c(header.as_bytes()), body)
    }
}
