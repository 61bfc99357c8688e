//! The superblock that such file systems have in common, and how they say of what type an inode is. What lies
//! behind it is each one's own; the page of each in docs/format describes all bits.

use amphi_device::PAGE_BYTES;
use amphi_vfs::FileType;
use amphi_volume::{Error, Result, TypeCodes, label_text, recognise};
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a page.
pub const PAGE: u64 = PAGE_BYTES as u64;
/// Most bytes of a label.
pub const LABEL_BYTES: usize = 32;
/// Fewest pages of a device.
pub const PAGES_MIN: u64 = 64;
/// Most pages of a device.
pub const PAGES_MAX: u64 = 1 << 32;
/// Longest file in blocks.
pub const FILE_BLOCKS_MAX: u64 = 1 << 30;
/// The only version.
pub const VERSION: u32 = 1;
/// Where the superblock counts mounts.
pub const MOUNTS_AT: u64 = 128;
/// Where it says whether the last mount ended with an unmount.
pub const CLEAN_AT: u64 = 136;

/// The numbers that stand for types of files.
pub const TYPES: TypeCodes = TypeCodes([
    FileType::Regular,
    FileType::Directory,
    FileType::Symlink,
    FileType::Fifo,
    FileType::Socket,
    FileType::CharDevice,
    FileType::BlockDevice,
]);

/// The first word of an inode that is there.
#[must_use]
pub const fn valid_word(file_type: FileType, generation: u32) -> u64 {
    1 | (TYPES.code(file_type) as u64) << 8 | (generation as u64) << 32
}

/// The start of page 0, which never changes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Superblock {
    /// Which file system it is.
    pub magic: [u8; 8],
    /// `VERSION`.
    pub version: U32,
    /// CRC-32C of the superblock with this field 0.
    pub crc: U32,
    /// Pages of the file system.
    pub pages: U64,
    /// The highest number of an inode; the lowest is 1.
    pub inodes: U64,
    /// A number of the file system's own.
    pub own: U64,
    /// Unique name.
    pub uuid: [u8; 16],
    /// Name, filled up with zeros.
    pub label: [u8; LABEL_BYTES],
}
const _: () = assert!(size_of::<Superblock>() == 88 && (size_of::<Superblock>() as u64) < MOUNTS_AT);

impl Superblock {
    /// The checksum that it should have.
    #[must_use]
    pub fn checksum(&self) -> u32 {
        crc32c::crc32c(Self { crc: 0.into(), ..*self }.as_bytes())
    }

    /// Whether it is one of a file system with this title and this magic, on a device of so many pages.
    /// Whether its numbers go together, only the file system knows.
    ///
    /// # Errors
    /// [`Error::NotThis`], [`Error::Version`], [`Error::Superblock`].
    pub fn check(&self, magic: [u8; 8], title: &'static str, device_pages: u64) -> Result<()> {
        recognise(
            title,
            self.magic == magic,
            (self.version.get(), VERSION),
            self.crc.get() == self.checksum(),
        )?;
        if (PAGES_MIN..=device_pages.min(PAGES_MAX)).contains(&self.pages.get()) {
            return Ok(());
        }
        Err(Error::Superblock { title, why: "it has an impossible size" })
    }

    /// The label.
    #[must_use]
    pub fn label(&self) -> String {
        label_text(&self.label)
    }
}
