//! The data journal (BY-16): records of file pages that are to be overwritten in place all together.
//!
//! The first page of the journal holds one line per record in flight, a [`JournalSlot`]; it is written in the
//! transaction that makes the record count, and emptied once its pages are in place. The record itself is one
//! or more descriptor pages, each a [`JournalHeader`] and the pages' places, followed by the pages.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{FormatError, LINE, LINES_PER_PAGE, PAGE};

/// First bytes of a descriptor page.
pub const JOURNAL_MAGIC: u32 = 0x4A4F_5942;
/// Records in flight at most: one line each in the journal's first page.
pub const JOURNAL_SLOTS: usize = LINES_PER_PAGE;
/// Places that one descriptor page has room for.
pub const RECORD_TARGETS: usize = (PAGE - size_of::<JournalHeader>()) / 4;

/// The record is descriptors and pages.
pub const RECORD_PAGES: u32 = 0;
/// The record is updates of metadata, of a transaction that the host makes (`variant=dual`): each a
/// [`RedoUpdate`] and its bytes, padded to 8.
pub const RECORD_UPDATES: u32 = 1;

/// Start of one update in a record of them.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RedoUpdate {
    /// Byte address on the device.
    pub at: U64,
    /// Bytes, 1 to 4096, within one page.
    pub len: U32,
    /// Zero.
    pub reserved: U32,
}

const _: () = assert!(size_of::<RedoUpdate>() == 16);

/// One record that counts; a line whose first 8 bytes are zero is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct JournalSlot {
    /// First page of the record, counted from the journal's first page; 0: the slot is empty.
    pub first: U32,
    /// Pages to be put in place; of a record of updates its bytes.
    pub blocks: U32,
    /// Number of the record, never twice the same.
    pub sequence: U64,
    /// The file that the pages belong to, 0 of a record of updates.
    pub ino: U32,
    /// [`RECORD_PAGES`] or [`RECORD_UPDATES`].
    pub kind: U32,
    /// Zero.
    pub reserved: [u8; 36],
    /// CRC-32C of all before.
    pub crc: U32,
}

/// Start of a descriptor page; as many device pages (4 B each) follow as it counts.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct JournalHeader {
    /// [`JOURNAL_MAGIC`].
    pub magic: U32,
    /// Places in this page.
    pub count: U32,
    /// The record's number.
    pub sequence: U64,
    /// The file that the pages belong to.
    pub ino: U32,
    /// CRC-32C of the header's other fields and the places.
    pub crc: U32,
}

const _: () = assert!(size_of::<JournalSlot>() == LINE);
const _: () = assert!(size_of::<JournalHeader>() == 24);
const _: () = assert!(RECORD_TARGETS == 1018);

/// Descriptor pages of a record of `blocks` pages.
#[must_use]
pub const fn record_descriptors(blocks: usize) -> usize {
    blocks.div_ceil(RECORD_TARGETS)
}

impl JournalSlot {
    /// Reads and checks a slot of a journal of `journal_pages` pages; `None` if it is empty.
    ///
    /// # Errors
    /// What does not match.
    pub fn decode(line: &[u8; LINE], journal_pages: u32) -> Result<Option<Self>, FormatError> {
        let what = "a journal slot";
        if line[..8] == [0; 8] {
            return Ok(None);
        }
        let slot = Self::read_from_bytes(line).map_err(|_| FormatError::Field(what, "length"))?;
        if slot.crc.get() != slot.checksum() {
            return Err(FormatError::Checksum(what));
        }
        let blocks = slot.blocks.get() as usize;
        let pages = match slot.kind.get() {
            RECORD_PAGES => record_descriptors(blocks) + blocks,
            RECORD_UPDATES => blocks.div_ceil(PAGE),
            _ => return Err(FormatError::Field(what, "kind")),
        };
        let end = u64::from(slot.first.get()) + pages as u64;
        if slot.first.get() == 0 || blocks == 0 || end > u64::from(journal_pages) {
            return Err(FormatError::Field(what, "place"));
        }
        Ok(Some(slot))
    }

    /// The line of a record of pages.
    #[must_use]
    pub fn encode(first: u32, blocks: u32, sequence: u64, ino: u32) -> [u8; LINE] {
        Self::encode_as(RECORD_PAGES, first, blocks, sequence, ino)
    }

    /// The line of a record of updates of so many bytes.
    #[must_use]
    pub fn encode_updates(first: u32, bytes: u32, sequence: u64) -> [u8; LINE] {
        Self::encode_as(RECORD_UPDATES, first, bytes, sequence, 0)
    }

    fn encode_as(kind: u32, first: u32, blocks: u32, sequence: u64, ino: u32) -> [u8; LINE] {
        let mut slot = Self {
            first: first.into(),
            blocks: blocks.into(),
            sequence: sequence.into(),
            ino: ino.into(),
            kind: kind.into(),
            reserved: [0; 36],
            crc: U32::ZERO,
        };
        slot.crc = slot.checksum().into();
        zerocopy::transmute!(slot)
    }

    fn checksum(&self) -> u32 {
        crc32c::crc32c(&self.as_bytes()[..LINE - 4])
    }
}

impl JournalHeader {
    /// Reads and checks a descriptor page of the record that `slot` names, and returns its places.
    ///
    /// # Errors
    /// What does not match.
    pub fn decode<'a>(page: &'a [u8; PAGE], slot: &JournalSlot) -> Result<&'a [U32], FormatError> {
        let what = "a journal record";
        let (header, rest) = Self::ref_from_prefix(page).map_err(|_| FormatError::Field(what, "length"))?;
        let count = header.count.get() as usize;
        if header.magic.get() != JOURNAL_MAGIC
            || header.sequence.get() != slot.sequence.get()
            || header.ino.get() != slot.ino.get()
        {
            return Err(FormatError::Field(what, "number or owner"));
        }
        if count == 0 || count > RECORD_TARGETS {
            return Err(FormatError::Field(what, "length"));
        }
        let (targets, _) = <[U32]>::ref_from_prefix_with_elems(rest, count)
            .map_err(|_| FormatError::Field(what, "length"))?;
        if header.crc.get() != header.checksum(targets) {
            return Err(FormatError::Checksum(what));
        }
        Ok(targets)
    }

    /// Writes a descriptor page.
    pub fn encode(page: &mut [u8; PAGE], sequence: u64, ino: u32, targets: &[U32]) {
        debug_assert!(targets.len() <= RECORD_TARGETS, "a record has as many descriptors as it needs");
        let mut header = Self {
            magic: JOURNAL_MAGIC.into(),
            count: (targets.len() as u32).into(),
            sequence: sequence.into(),
            ino: ino.into(),
            crc: U32::ZERO,
        };
        header.crc = header.checksum(targets).into();
        page[..size_of::<Self>()].copy_from_slice(header.as_bytes());
        page[size_of::<Self>()..size_of::<Self>() + targets.len() * 4].copy_from_slice(targets.as_bytes());
    }

    fn checksum(&self, targets: &[U32]) -> u32 {
        let bytes = self.as_bytes();
        crc32c::crc32c_append(crc32c::crc32c(&bytes[..bytes.len() - 4]), targets.as_bytes())
    }
}
