//! A batch: changes that count all or none, as one entry of the log.

use std::ops::Range;

use zerocopy::FromBytes;
use zerocopy::little_endian::{U32, U64};

use crate::format::{self, BATCH_MAX, BatchHeader, KEY_MAX, VALUE_MAX};
use crate::{Error, Result};

/// Bytes for which a batch takes memory at first: a few changes.
const USUAL_BYTES: usize = 512;

/// Changes that are applied together. Of two changes of one key the later counts.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    records: Vec<u8>,
    count: u32,
}

impl Batch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts a value under a key.
    ///
    /// # Errors
    /// [`Error::TooLarge`] for a key above 4 KB, a value above 256 KB, a batch above 1 MB; the batch is as
    /// before.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.add(key, Some(value))
    }

    /// Deletes a key, whether it is there or not.
    ///
    /// # Errors
    /// As for [`put`](Batch::put).
    pub fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.add(key, None)
    }

    fn add(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        let bytes = size_of::<BatchHeader>() + self.records.len() + format::record_bytes(key, value);
        let sizes = [
            ("a key", key.len(), KEY_MAX),
            ("a value", value.map_or(0, <[u8]>::len), VALUE_MAX),
            ("a batch", bytes, BATCH_MAX),
        ];
        if let Some(&(what, bytes, limit)) = sizes.iter().find(|(_, bytes, limit)| bytes > limit) {
            return Err(Error::TooLarge { what, bytes, limit });
        }
        if self.records.capacity() == 0 {
            self.records.reserve(USUAL_BYTES);
        }
        format::encode_record(&mut self.records, key, value);
        self.count += 1;
        Ok(())
    }

    /// Number of changes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there is no change.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether a batch of at most `limit` bytes has room for another one.
    pub(crate) fn has_room_for(&self, other: &Self, limit: usize) -> bool {
        self.content_bytes() + other.records.len() <= limit.min(BATCH_MAX)
    }

    /// Adds the changes of another one.
    pub(crate) fn append(&mut self, other: &Self) {
        self.records.extend_from_slice(&other.records);
        self.count += other.count;
    }

    /// Bytes of its content in the log.
    #[must_use]
    pub fn content_bytes(&self) -> usize {
        size_of::<BatchHeader>() + self.records.len()
    }

    /// What its content in the log begins with, `first` being the first change's sequence number; its
    /// records follow.
    pub(crate) fn header(&self, first: u64) -> BatchHeader {
        BatchHeader { first: U64::new(first), count: U32::new(self.count), zero: U32::ZERO }
    }

    /// Its changes as they stand in the log.
    pub(crate) fn records(&self) -> &[u8] {
        &self.records
    }

    /// Gives `visit` each change, the first one with the sequence number `first`.
    pub(crate) fn visit(&self, first: u64, visit: impl FnMut(u64, &[u8], Option<&[u8]>)) -> Result<()> {
        visit_records(&self.records, first..first + u64::from(self.count), visit)
    }
}

/// Gives `visit` each change of a content of the log: sequence number, key, value.
///
/// # Errors
/// [`Error::Damaged`] for what is no batch; `visit` may have seen some of it by then.
pub(crate) fn visit(content: &[u8], visit: impl FnMut(u64, &[u8], Option<&[u8]>)) -> Result<()> {
    let (header, records) = BatchHeader::read_from_prefix(content).map_err(|_| damaged(content))?;
    let (first, count) = (header.first.get(), header.count.get());
    // No sequence number is the last one: one more than it is always one.
    if first == 0 || first.checked_add(u64::from(count)).is_none_or(|end| end > u64::MAX / 2) {
        return Err(damaged(content));
    }
    visit_records(records, first..first + u64::from(count), visit)
}

/// Gives `visit` each of the records, which have these sequence numbers.
fn visit_records(
    records: &[u8],
    numbers: Range<u64>,
    mut visit: impl FnMut(u64, &[u8], Option<&[u8]>),
) -> Result<()> {
    let mut rest = records;
    for seq in numbers {
        let ((key, value), behind) = format::decode_record(rest).ok_or_else(|| damaged(records))?;
        visit(seq, key, value);
        rest = behind;
    }
    if rest.is_empty() { Ok(()) } else { Err(damaged(records)) }
}

fn damaged(bytes: &[u8]) -> Error {
    Error::Damaged { what: "a batch in the log", at: bytes.len() as u64 }
}
