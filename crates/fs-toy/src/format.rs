//! What is on the device: a superblock in page 0, and two halves behind it. One half holds the log: records,
//! each from the start of a page. The first one holds the whole map. docs/format/toy.md describes the bits.

use amphi_device::PAGE_BYTES;
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What a superblock starts with.
pub const MAGIC: [u8; 8] = *b"AMPHITOY";
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
    /// Counts the times that the log began anew; the half is the lowest bit.
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
    /// The superblock's generation: what is older is not of this log.
    pub generation: U64,
    /// Its number in the log.
    pub number: U64,
    /// Bytes behind the header.
    pub bytes: U32,
    /// CRC-32C of the header with this field 0, and of what is behind it.
    pub crc: U32,
}
const _: () = assert!(size_of::<RecordHeader>() == 24);

/// Why page 0 is no superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// Something else, or nothing.
    #[error("the device holds no toy")]
    NotToy,
    /// A version that this program does not know.
    #[error("version {0} of the toy is unknown")]
    Version(u32),
    /// Its checksum or its size is wrong.
    #[error("the toy's superblock is damaged")]
    Damaged,
}

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
    /// [`FormatError`].
    pub fn decode(page: &[u8; PAGE_BYTES], device_pages: u64) -> Result<Self, FormatError> {
        let (sb, _) = Self::read_from_prefix(page).map_err(|_| FormatError::NotToy)?;
        if sb.magic != MAGIC {
            return Err(FormatError::NotToy);
        }
        if sb.version.get() != VERSION {
            return Err(FormatError::Version(sb.version.get()));
        }
        let fits = (PAGES_MIN..=device_pages).contains(&sb.pages.get());
        if sb.crc.get() == sb.checksum() && fits { Ok(sb) } else { Err(FormatError::Damaged) }
    }

    /// The label.
    pub fn label(&self) -> String {
        let end = self.label.iter().position(|byte| *byte == 0).unwrap_or(LABEL_BYTES);
        String::from_utf8_lossy(&self.label[..end]).into_owned()
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
