//! The data journal (BY-16, §4.6): how file pages that go by block are overwritten all together, and together
//! with a transaction.
//!
//! A record, its descriptor and its pages, is written to the journal by block. Then one line, the record's
//! slot, is stored within the firmware transaction that carries everything else the write-back changes;
//! `COMMIT` makes record and transaction count at once. Then the pages are written in place and the slot is
//! emptied. Both happen before the file's lock is released, so that nothing newer can meet a record that a
//! crash would replay over it. After a crash the mount puts in place what committed slots name (§4.7,
//! `replay.rs`).
//!
//! Here is the journal's space; `record.rs` writes records of pages, `redo.rs` those of updates.

use std::sync::atomic::{AtomicU64, Ordering};

use amphi_device::{BlockPort, BytePort, BytePortExt, Lpa, Structure};
use amphi_rt::sync::{Condvar, Mutex};

use crate::format::{FormatError, JOURNAL_SLOTS, JournalSlot, LINE, Layout, PAGE, record_descriptors};

/// The journal's space and its records' numbers.
pub struct Journal {
    first: u64,
    pages: u32,
    sequence: AtomicU64,
    space: Mutex<Space>,
    freed: Condvar,
}

/// What records in flight take: by slot, first page and length; length 0 is a free slot.
struct Space {
    taken: [(u32, u32); JOURNAL_SLOTS],
}

/// A record in flight.
pub struct Record {
    slot: usize,
    first: u32,
}

impl Space {
    /// The lowest place for `pages` consecutive pages among `all`, and a slot.
    fn find(&self, pages: u32, all: u32) -> Option<(usize, u32)> {
        let slot = self.taken.iter().position(|(_, len)| *len == 0)?;
        let mut taken: Vec<(u32, u32)> = self.taken.iter().copied().filter(|(_, len)| *len > 0).collect();
        taken.sort_unstable();
        let mut at = 1;
        for (first, len) in taken {
            if first - at >= pages {
                break;
            }
            at = first + len;
        }
        (all - at >= pages).then_some((slot, at))
    }
}

impl Journal {
    /// The journal of a file system; `epoch` differs from mount to mount.
    pub fn new(layout: &Layout, epoch: u64) -> Self {
        Self {
            first: u64::from(layout.journal),
            pages: layout.journal_pages,
            sequence: AtomicU64::new(epoch << 32),
            space: Mutex::new(Space { taken: [(0, 0); JOURNAL_SLOTS] }),
            freed: Condvar::new(),
        }
    }

    /// Most pages that one record holds.
    pub const fn capacity(&self) -> usize {
        let room = self.pages.saturating_sub(1) as usize;
        room.saturating_sub(record_descriptors(room))
    }

    /// Takes space for a record of `blocks` pages, at most [`capacity`](Self::capacity); waits until there is
    /// some. `None` once the file system `failed`: what then fills the journal may have to be replayed.
    pub fn take(&self, blocks: usize, failed: impl Fn() -> bool) -> Option<Record> {
        debug_assert!(blocks <= self.capacity(), "a write-back has no more pages than a record holds");
        self.take_pages((record_descriptors(blocks) + blocks) as u32, failed)
    }

    /// Whether an empty journal has room for so many pages.
    pub const fn holds(&self, pages: u32) -> bool {
        pages < self.pages
    }

    /// As [`take`](Self::take), for `pages` pages in all, which an empty journal [`holds`](Self::holds).
    pub fn take_pages(&self, pages: u32, failed: impl Fn() -> bool) -> Option<Record> {
        let mut space = self.space.lock();
        loop {
            if failed() {
                return None;
            }
            if let Some((slot, first)) = space.find(pages, self.pages) {
                space.taken[slot] = (first, pages);
                return Some(Record { slot, first });
            }
            self.freed.wait(&mut space);
        }
    }

    fn give_back(&self, record: &Record) {
        self.space.lock().taken[record.slot] = (0, 0);
        self.freed.notify_all();
    }

    /// Lets those who wait for space see that the file system has failed.
    pub fn wake_all(&self) {
        drop(self.space.lock());
        self.freed.notify_all();
    }

    /// The record's first page.
    pub const fn page(&self, record: &Record) -> Lpa {
        Lpa(self.first + record.first as u64)
    }

    /// A number for a record.
    pub fn next_sequence(&self) -> u64 {
        self.sequence.fetch_add(1, Ordering::Relaxed)
    }

    /// The slot's address, and the line that makes a record of updates of so many bytes count.
    pub fn updates_slot(&self, record: &Record, bytes: u32) -> (u64, [u8; LINE]) {
        let sequence = self.next_sequence();
        (self.slot_address(record.slot), JournalSlot::encode_updates(record.first, bytes, sequence))
    }

    /// As [`updates_slot`](Self::updates_slot), of a record of so many pages of file `ino`.
    pub fn pages_slot(&self, record: &Record, pages: u32, sequence: u64, ino: u32) -> (u64, [u8; LINE]) {
        (self.slot_address(record.slot), JournalSlot::encode(record.first, pages, sequence, ino))
    }

    /// Empties the slot of a record whose pages are durable in place.
    ///
    /// # Errors
    /// The device's; the record then stays for the next mount.
    pub fn retire<D: BytePort>(&self, device: &D, record: &Record) -> amphi_device::Result<()> {
        // Eight bytes are never torn, and zero is what makes a slot empty.
        device.persist(self.slot_address(record.slot), &[0; 8], None, Structure::Journal)?;
        self.give_back(record);
        Ok(())
    }

    const fn slot_address(&self, slot: usize) -> u64 {
        Lpa(self.first).byte(slot * LINE)
    }
}

/// Reads a page; one with a media error is no use to a record.
///
/// # Errors
/// Every other error of the device.
pub fn read_page<D: BlockPort>(
    device: &D,
    at: Lpa,
    into: &mut [u8; PAGE],
) -> amphi_device::Result<Result<(), FormatError>> {
    match device.read(at, &mut into[..], Structure::Journal) {
        Ok(()) => Ok(Ok(())),
        Err(amphi_device::Error::Media(_)) => {
            Ok(Err(FormatError::Field("the data journal", "page: it is unreadable")))
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(journal: &Journal, blocks: usize) -> Record {
        journal.take(blocks, || false).expect("nothing has failed")
    }

    #[test]
    fn records_find_room_between_others() {
        let journal = Journal::new(&Layout::plan(4096, 512, 100), 1);
        assert_eq!(journal.capacity(), 98);
        let (a, b, c) = (take(&journal, 9), take(&journal, 19), take(&journal, 29));
        assert_eq!((a.first, b.first, c.first), (1, 11, 31));
        journal.give_back(&b);
        assert_eq!(take(&journal, 30).first, 61, "too long for the gap");
        assert_eq!(take(&journal, 5).first, 11, "short enough for it");
        journal.give_back(&a);
        assert_eq!(take(&journal, 9).first, 1);
    }

    #[test]
    fn a_record_of_full_length_fits_an_empty_journal_only() {
        let journal = Journal::new(&Layout::plan(4096, 512, 100), 1);
        let all = take(&journal, journal.capacity());
        assert!(journal.space.lock().find(2, 100).is_none());
        journal.give_back(&all);
        assert!(journal.space.lock().find(99, 100).is_some());
    }

    #[test]
    fn nobody_waits_for_a_failed_file_system() {
        let journal = Journal::new(&Layout::plan(4096, 512, 100), 1);
        take(&journal, journal.capacity());
        assert!(journal.take(1, || true).is_none());
    }
}
