//! Where things are on the block side: superblock, manifest, backing of the log.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::PAGE;
use super::table::TABLE_PAGES_MAX;

const SUPER_MAGIC: u64 = u64::from_le_bytes(*b"AMPHILSM");
const MANIFEST_MAGIC: u64 = u64::from_le_bytes(*b"AMPHIMAN");
const BACKING_MAGIC: u64 = u64::from_le_bytes(*b"AMPHIBAK");
const VERSION: u32 = 1;
/// The most pages of a manifest: it is in memory at once when it is read.
pub const MANIFEST_PAGES_MAX: u32 = 1 << 14;
/// The most pages of a file of the backing: half of the largest log, and the header's.
const BACKING_FILE_PAGES_MAX: u32 = (1 << 30) / PAGE as u32 + 1;
/// Levels of tables.
pub const LEVELS: usize = 7;

/// In the first page: which areas the store has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Superblock {
    magic: U64,
    version: U32,
    zero: U32,
    /// Tells this store's log and tables from another's.
    pub salt: U64,
    /// First byte of the log in the memory area.
    pub log_at: U64,
    /// Bytes of the log.
    pub log_bytes: U64,
    /// Pages of each of the two manifests, which are behind this page.
    pub manifest_pages: U32,
    /// Files of the log that the backing behind them holds.
    pub backing_files: U32,
    /// Pages of each.
    pub backing_file_pages: U32,
    zero_too: U32,
    /// Pages for tables, behind all that.
    pub table_pages: U64,
    zero_three: U32,
    /// CRC-32C of all before it.
    crc: U32,
}

/// At the beginning of a manifest.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ManifestHeader {
    magic: U64,
    version: U32,
    /// Tables behind this.
    pub tables: U32,
    salt: U64,
    /// The manifest with the higher one counts.
    pub generation: U64,
    /// All changes up to this sequence number are in tables.
    pub flushed: U64,
    /// The number of the next table.
    pub next_number: U64,
    zero: U32,
    /// CRC-32C of all before it and of the tables.
    crc: U32,
}

/// A table as the manifest names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct TableRecord {
    /// Its number.
    pub number: U64,
    /// Its first page, from the start of the tables' area.
    pub page: U64,
    /// Its pages.
    pub pages: U32,
    /// Its level.
    pub level: U32,
}

/// At the beginning of a file of the backing: a page before the log's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BackingHeader {
    magic: U64,
    salt: U64,
    /// Where the bytes were in the data area of the log.
    pub start: U64,
    /// How many they are.
    pub bytes: U64,
    /// The last sequence number in them.
    pub last: U64,
    zero: U32,
    crc: U32,
}

const _: () = assert!(size_of::<Superblock>() == 72 && size_of::<ManifestHeader>() == 56);
const _: () = assert!(size_of::<TableRecord>() == 24 && size_of::<BackingHeader>() == 48);

fn checksum<T: IntoBytes + Immutable>(of: &T) -> u32 {
    crc32c::crc32c(&of.as_bytes()[..size_of::<T>() - 4])
}

impl Superblock {
    /// A superblock.
    #[must_use]
    pub fn new(
        salt: u64,
        log: (u64, u64),
        manifest_pages: u32,
        backing: (u32, u32),
        table_pages: u64,
    ) -> Self {
        let mut new = Self {
            magic: U64::new(SUPER_MAGIC),
            version: U32::new(VERSION),
            zero: U32::ZERO,
            salt: U64::new(salt),
            log_at: U64::new(log.0),
            log_bytes: U64::new(log.1),
            manifest_pages: U32::new(manifest_pages),
            backing_files: U32::new(backing.0),
            backing_file_pages: U32::new(backing.1),
            zero_too: U32::ZERO,
            table_pages: U64::new(table_pages),
            zero_three: U32::ZERO,
            crc: U32::ZERO,
        };
        new.crc = U32::new(checksum(&new));
        new
    }

    /// The superblock in a page.
    #[must_use]
    pub fn decode(page: &[u8]) -> Option<Self> {
        let (read, _) = Self::read_from_prefix(page).ok()?;
        let right = read.magic.get() == SUPER_MAGIC
            && read.version.get() == VERSION
            && read.crc.get() == checksum(&read)
            && read.manifest_pages.get() <= MANIFEST_PAGES_MAX
            && read.backing_file_pages.get() <= BACKING_FILE_PAGES_MAX;
        right.then_some(read)
    }

    /// The first page of a manifest, from the store's start.
    #[must_use]
    pub fn manifest(&self, which: u64) -> u64 {
        1 + which * u64::from(self.manifest_pages.get())
    }

    /// The first page of a file of the backing, from the store's start.
    #[must_use]
    pub fn backing(&self, file: u64) -> u64 {
        self.manifest(2) + file * u64::from(self.backing_file_pages.get())
    }

    /// The first page for tables, from the store's start.
    #[must_use]
    pub fn tables(&self) -> u64 {
        self.backing(u64::from(self.backing_files.get()))
    }

    /// The pages of the whole store; `None` if they are more than can be.
    #[must_use]
    pub fn pages(&self) -> Option<u64> {
        self.tables().checked_add(self.table_pages.get())
    }
}

/// Pages of a manifest with room for `tables` tables.
#[must_use]
pub fn manifest_pages(tables: u64) -> u64 {
    (size_of::<ManifestHeader>() as u64 + tables * size_of::<TableRecord>() as u64).div_ceil(PAGE as u64)
}

/// The manifest's bytes, whole pages.
#[must_use]
pub fn encode_manifest(
    salt: u64,
    generation: u64,
    flushed: u64,
    next_number: u64,
    tables: &[TableRecord],
) -> Vec<u8> {
    let mut header = ManifestHeader {
        magic: U64::new(MANIFEST_MAGIC),
        version: U32::new(VERSION),
        tables: U32::new(tables.len() as u32),
        salt: U64::new(salt),
        generation: U64::new(generation),
        flushed: U64::new(flushed),
        next_number: U64::new(next_number),
        zero: U32::ZERO,
        crc: U32::ZERO,
    };
    header.crc = U32::new(crc32c::crc32c_append(checksum(&header), tables.as_bytes()));
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend_from_slice(tables.as_bytes());
    bytes.resize(bytes.len().next_multiple_of(PAGE), 0);
    bytes
}

/// What a manifest of this store says. Tables are checked one by one, not against each other.
#[must_use]
pub fn decode_manifest(salt: u64, bytes: &[u8]) -> Option<(ManifestHeader, Vec<TableRecord>)> {
    let (header, rest) = ManifestHeader::read_from_prefix(bytes).ok()?;
    let records = (header.tables.get() as usize).checked_mul(size_of::<TableRecord>())?;
    let records = rest.get(..records)?;
    let right = header.magic.get() == MANIFEST_MAGIC
        && header.version.get() == VERSION
        && header.salt.get() == salt
        // One more than each of them is always one.
        && header.generation.get() < u64::MAX / 2
        && header.flushed.get() < u64::MAX / 2
        && header.next_number.get() < u64::MAX / 2
        && header.crc.get() == crc32c::crc32c_append(checksum(&header), records);
    if !right {
        return None;
    }
    let tables = <[TableRecord]>::ref_from_bytes(records).ok()?;
    let possible = |table: &TableRecord| {
        table.pages.get() > 0
            && table.pages.get() <= TABLE_PAGES_MAX
            && (table.level.get() as usize) < LEVELS
            && table.number.get() < header.next_number.get()
    };
    tables.iter().all(possible).then(|| (header, tables.to_vec()))
}

impl BackingHeader {
    /// A header.
    #[must_use]
    pub fn new(salt: u64, start: u64, bytes: u64, last: u64) -> Self {
        let mut new = Self {
            magic: U64::new(BACKING_MAGIC),
            salt: U64::new(salt),
            start: U64::new(start),
            bytes: U64::new(bytes),
            last: U64::new(last),
            zero: U32::ZERO,
            crc: U32::ZERO,
        };
        new.crc = U32::new(checksum(&new));
        new
    }

    /// The header of this store in a page, if there is one.
    #[must_use]
    pub fn decode(page: &[u8], salt: u64) -> Option<Self> {
        let (read, _) = Self::read_from_prefix(page).ok()?;
        let right =
            read.magic.get() == BACKING_MAGIC && read.salt.get() == salt && read.crc.get() == checksum(&read);
        right.then_some(read)
    }
}
