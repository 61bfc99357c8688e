//! Tables: blocks of sorted entries, an index, a filter, a footer in the last page.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::PAGE;
use super::records::{Record, decode_record, encode_record};

/// The most pages of a table. One table's index and filter are in memory at once when it is opened.
pub const TABLE_PAGES_MAX: u32 = (64 << 20) / PAGE as u32;
const BLOCK_MAGIC: u32 = 0x4b4c_4231;
const FOOTER_MAGIC: u64 = u64::from_le_bytes(*b"AMPHISST");
const VERSION: u32 = 1;

/// At the beginning of a block, which begins at a page.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct BlockHeader {
    magic: U32,
    /// CRC-32C of the table's number and of all behind this field.
    crc: U32,
    /// Bytes of entries behind the header.
    bytes: U32,
    entries: U32,
}

/// In the last page of a table.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Footer {
    magic: U64,
    version: U32,
    zero: U32,
    /// The table's number, as in the manifest.
    pub number: U64,
    /// Entries in all blocks.
    pub entries: U64,
    /// The first page of the index, from the table's start.
    pub index_page: U32,
    /// Bytes of the index.
    pub index_bytes: U32,
    /// CRC-32C of the index.
    pub index_crc: U32,
    /// The first page of the filter, from the table's start.
    pub filter_page: U32,
    /// Bytes of the filter.
    pub filter_bytes: U32,
    /// CRC-32C of the filter.
    pub filter_crc: U32,
    zero_too: U32,
    /// CRC-32C of all before it.
    crc: U32,
}

/// Before each key of the index.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct IndexHeader {
    page: U32,
    pages: U32,
}

const _: () =
    assert!(size_of::<BlockHeader>() == 16 && size_of::<Footer>() == 64 && size_of::<IndexHeader>() == 8);

impl Footer {
    /// A footer that ends with its checksum.
    #[must_use]
    pub fn new(number: u64, entries: u64, index: (u32, &[u8]), filter: (u32, &[u8])) -> Self {
        let mut footer = Self {
            magic: U64::new(FOOTER_MAGIC),
            version: U32::new(VERSION),
            zero: U32::ZERO,
            number: U64::new(number),
            entries: U64::new(entries),
            index_page: U32::new(index.0),
            index_bytes: U32::new(index.1.len() as u32),
            index_crc: U32::new(crc32c::crc32c(index.1)),
            filter_page: U32::new(filter.0),
            filter_bytes: U32::new(filter.1.len() as u32),
            filter_crc: U32::new(crc32c::crc32c(filter.1)),
            zero_too: U32::ZERO,
            crc: U32::ZERO,
        };
        footer.crc = U32::new(footer.checksum());
        footer
    }

    fn checksum(&self) -> u32 {
        crc32c::crc32c(&self.as_bytes()[..size_of::<Self>() - 4])
    }

    /// The footer in the last page of a table with this number.
    #[must_use]
    pub fn decode(page: &[u8], number: u64) -> Option<Self> {
        let (footer, _) = Self::read_from_prefix(page).ok()?;
        let right = footer.magic.get() == FOOTER_MAGIC
            && footer.version.get() == VERSION
            && footer.number.get() == number
            && footer.crc.get() == footer.checksum();
        right.then_some(footer)
    }
}

/// Appends a table's entry to the entries of a block.
pub fn encode_entry(into: &mut Vec<u8>, key: &[u8], seq: u64, value: Option<&[u8]>) {
    into.extend_from_slice(&seq.to_le_bytes());
    encode_record(into, key, value);
}

/// A block of whole pages with these entries.
#[must_use]
pub fn encode_block(number: u64, entries: u32, data: &[u8]) -> Vec<u8> {
    let mut header = BlockHeader {
        magic: U32::new(BLOCK_MAGIC),
        crc: U32::ZERO,
        bytes: U32::new(data.len() as u32),
        entries: U32::new(entries),
    };
    header.crc = U32::new(block_crc(number, &header, data));
    let mut block = header.as_bytes().to_vec();
    block.extend_from_slice(data);
    block.resize(block.len().next_multiple_of(PAGE), 0);
    block
}

fn block_crc(number: u64, header: &BlockHeader, data: &[u8]) -> u32 {
    let crc = crc32c::crc32c(&number.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c_append(crc, &header.as_bytes()[8..]), data)
}

/// Bytes of a block's header.
pub const BLOCK_FRAME: usize = size_of::<BlockHeader>();

/// The entries of a block, in order.
#[must_use]
pub fn decode_block(number: u64, block: &[u8]) -> Option<Vec<(u64, Record<'_>)>> {
    let (header, rest) = BlockHeader::read_from_prefix(block).ok()?;
    let mut data = rest.get(..header.bytes.get() as usize)?;
    if header.magic.get() != BLOCK_MAGIC || header.crc.get() != block_crc(number, &header, data) {
        return None;
    }
    let mut entries = Vec::new();
    while !data.is_empty() {
        let (seq, record) = U64::read_from_prefix(data).ok()?;
        let (record, behind) = decode_record(record)?;
        entries.push((seq.get(), record));
        data = behind;
    }
    (entries.len() as u64 == u64::from(header.entries.get())).then_some(entries)
}

/// A block as the index names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Indexed {
    /// First page, from the table's start.
    pub page: u32,
    /// Pages.
    pub pages: u32,
    /// The last key in it.
    pub last: Vec<u8>,
}

/// The index: the table's first key, then each block.
#[must_use]
pub fn encode_index(first: &[u8], blocks: &[Indexed]) -> Vec<u8> {
    let mut index = Vec::new();
    encode_record(&mut index, first, None);
    for block in blocks {
        index.extend_from_slice(
            IndexHeader { page: U32::new(block.page), pages: U32::new(block.pages) }.as_bytes(),
        );
        encode_record(&mut index, &block.last, None);
    }
    index
}

/// The first key and the blocks of an index of a table with `pages` pages of blocks: each behind the other,
/// keys ascending.
#[must_use]
pub fn decode_index(index: &[u8], pages: u32) -> Option<(Vec<u8>, Vec<Indexed>)> {
    let ((first, _), mut rest) = decode_record(index)?;
    let mut blocks: Vec<Indexed> = Vec::new();
    let mut next = 0u32;
    while !rest.is_empty() {
        let (header, record) = IndexHeader::read_from_prefix(rest).ok()?;
        let ((last, _), behind) = decode_record(record)?;
        let (page, count) = (header.page.get(), header.pages.get());
        let ascends = blocks.last().map_or(first, |before| &before.last) <= last;
        if page != next || count == 0 || count > pages - next || !ascends {
            return None;
        }
        next += count;
        blocks.push(Indexed { page, pages: count, last: last.to_vec() });
        rest = behind;
    }
    (!blocks.is_empty() && next == pages).then(|| (first.to_vec(), blocks))
}
