//! What a log puts on the device: a header page, then records one behind the other. Little-endian, sizes
//! fixed at compile time. The byte diagrams are in docs/format/wal.md.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// First bytes of every log.
pub const MAGIC: [u8; 8] = *b"AMPHIWAL";
/// Version of the format.
pub const VERSION: u32 = 1;
/// Most bytes of a record's content.
pub const RECORD_MAX: usize = 16 << 20;

/// The start of page 0. Smaller than the 512 B that no block write tears.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: U32,
    /// CRC-32C of the header with zero here.
    pub crc: U32,
    /// A random number: records of another log are none of this one.
    pub salt: U64,
    /// Pages of the log, this one included.
    pub pages: U64,
    /// How often the log was opened or truncated.
    pub opened: U64,
    /// Records with a lower number of openings are of no more use.
    pub since: U64,
    /// Sequence number of the first record.
    pub first: U64,
}

const _: () = assert!(size_of::<Header>() == 56 && size_of::<RecordHead>() == RECORD_HEAD);

/// Bytes of a [`RecordHead`].
pub const RECORD_HEAD: usize = 24;

/// What stands before a record's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RecordHead {
    /// Bytes of the content, up to [`RECORD_MAX`].
    pub length: U32,
    /// CRC-32C of salt, place, the rest of this head, and the content.
    pub crc: U32,
    /// Its number; each record has the next one.
    pub sequence: U64,
    /// [`Header::opened`] when it was written.
    pub opened: U64,
}

impl Header {
    /// A header with its checksum.
    #[must_use]
    pub fn new(salt: u64, pages: u64, opened: u64, since: u64, first: u64) -> Self {
        let mut header = Self {
            magic: MAGIC,
            version: U32::new(VERSION),
            crc: U32::ZERO,
            salt: U64::new(salt),
            pages: U64::new(pages),
            opened: U64::new(opened),
            since: U64::new(since),
            first: U64::new(first),
        };
        header.crc = U32::new(header.checksum());
        header
    }

    fn checksum(&self) -> u32 {
        crc32c::crc32c(Self { crc: U32::ZERO, ..*self }.as_bytes())
    }

    /// The page that begins with it.
    #[must_use]
    pub fn page(&self) -> [u8; PAGE] {
        let mut page = [0; PAGE];
        page[..size_of::<Self>()].copy_from_slice(self.as_bytes());
        page
    }

    /// The header at the start of a page.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn decode(page: &[u8; PAGE]) -> Result<Self, &'static str> {
        let (header, _) = Self::read_from_prefix(page).expect("a page is longer");
        if header.magic != MAGIC {
            return Err("the header has no magic number");
        }
        if header.version.get() != VERSION {
            return Err("the header is of another version");
        }
        if header.crc.get() != header.checksum() {
            return Err("the header does not match its checksum");
        }
        if header.since > header.opened || header.first.get() == 0 {
            return Err("the header's numbers contradict each other");
        }
        Ok(header)
    }
}

impl RecordHead {
    /// The head of a record at byte `at` of the log with `salt`.
    #[must_use]
    pub fn new(salt: u64, at: u64, sequence: u64, opened: u64, content: &[u8]) -> Self {
        let mut head = Self {
            length: U32::new(content.len() as u32),
            crc: U32::ZERO,
            sequence: U64::new(sequence),
            opened: U64::new(opened),
        };
        head.crc = U32::new(head.checksum(salt, at, content));
        head
    }

    /// The checksum that it has if it was written there with this content.
    #[must_use]
    pub fn checksum(&self, salt: u64, at: u64, content: &[u8]) -> u32 {
        let mut crc = crc32c::crc32c(&salt.to_le_bytes());
        crc = crc32c::crc32c_append(crc, &at.to_le_bytes());
        crc = crc32c::crc32c_append(crc, Self { crc: U32::ZERO, ..*self }.as_bytes());
        crc32c::crc32c_append(crc, content)
    }

    /// The head at the start of `bytes`.
    #[must_use]
    pub fn decode(bytes: &[u8; RECORD_HEAD]) -> Self {
        Self::read_from_bytes(bytes).expect("as many bytes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_with_any_byte_changed_is_refused() {
        let header = Header::new(1, 10, 4, 3, 77);
        assert_eq!(Header::decode(&header.page()), Ok(header));
        for byte in 0..size_of::<Header>() {
            let mut page = header.page();
            page[byte] ^= 0x10;
            assert!(Header::decode(&page).is_err(), "byte {byte}");
        }
        assert!(Header::decode(&Header::new(1, 10, 2, 3, 77).page()).is_err());
        assert!(Header::decode(&Header::new(1, 10, 3, 3, 0).page()).is_err());
    }

    #[test]
    fn a_record_counts_only_in_its_log_at_its_place_and_whole() {
        let head = RecordHead::new(1, 640, 5, 2, b"content");
        assert_eq!(head.crc.get(), head.checksum(1, 640, b"content"));
        assert_eq!(RecordHead::decode(head.as_bytes().try_into().expect("24")), head);
        for other in [
            head.checksum(2, 640, b"content"),
            head.checksum(1, 641, b"content"),
            head.checksum(1, 640, b"contenu"),
            RecordHead { sequence: U64::new(6), ..head }.checksum(1, 640, b"content"),
            RecordHead { opened: U64::new(3), ..head }.checksum(1, 640, b"content"),
        ] {
            assert_ne!(head.crc.get(), other);
        }
    }
}
