//! The data journal (BY-16, §4.6): how file pages that go by block are overwritten all together, and together with a transaction.
//!
//! A record, its descriptor and its pages, is written to the journal by block. Then one line, the record's slot, is stored within the firmware
//! transaction that carries everything else the write-back changes; `COMMIT` makes record and transaction count at once. Then the pages
//! are written in place and the slot is emptied. Both happen before the file's lock is released, so that nothing newer can meet a record that a crash
//! would replay over it. After a crash the mount puts in place what committed slots name (§4.7).

use std::sync::atomic::{AtomicU64, Ordering};

use amphi_device::{BlockPort, BytePortExt, Completion, Lpa, Structure, WriteLog};
use amphi_rt::sync::{Condvar, Mutex};
use amphi_vfs::{Error, Result};
use zerocopy::little_endian::U32;

use crate::commit::redo;
use crate::commit::tx::Tx;
use crate::core::Core;
use crate::data::writeback::WRITE_RUN_MAX;
use crate::format::{
    FormatError, JOURNAL_SLOTS, JournalHeader, JournalSlot, LINE, Layout, PAGE, RECORD_TARGETS,
    RECORD_UPDATES, record_descriptors,
};

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

    /// Takes space for a record of `blocks` pages, at most [`capacity`](Self::capacity); waits until there is some. `None` once the file system
    /// `failed`: what then fills the journal may have to be replayed.
    fn take(&self, blocks: usize, failed: impl Fn() -> bool) -> Option<Record> {
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

    /// The slot's address, and the line that makes a record of updates of so many bytes count.
    pub fn updates_slot(&self, record: &Record, bytes: u32) -> (u64, [u8; LINE]) {
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
        (self.slot_address(record.slot), JournalSlot::encode_updates(record.first, bytes, sequence))
    }

    const fn slot_address(&self, slot: usize) -> u64 {
        Lpa(self.first).byte(slot * LINE)
    }
}

/// Writes the record of `blocks`, (device page, contents), of file `ino`, waits until it is durable, and adds its slot to `tx`.
///
/// # Errors
/// [`Error::Io`](amphi_vfs::Error::Io), [`Error::ReadOnly`]; the file system has then turned read-only.
pub fn write_record<D: BlockPort + WriteLog>(
    core: &Core<D>,
    ino: u32,
    blocks: &[(u64, &[u8])],
    tx: &mut Tx<'_, D>,
) -> Result<Record> {
    let journal = &core.journal;
    let record = journal.take(blocks.len(), || core.writable().is_err()).ok_or(Error::ReadOnly)?;
    let sequence = journal.sequence.fetch_add(1, Ordering::Relaxed);
    let descriptors: Vec<Box<[u8; PAGE]>> = blocks
        .chunks(RECORD_TARGETS)
        .map(|chunk| {
            let targets: Vec<U32> = chunk.iter().map(|(lba, _)| U32::new(*lba as u32)).collect();
            let mut page = Box::new([0; PAGE]);
            JournalHeader::encode(&mut page, sequence, ino, &targets);
            page
        })
        .collect();
    let heads = descriptors.iter().map(|page| &page[..]);
    let pages: Vec<&[u8]> = heads.chain(blocks.iter().map(|(_, data)| *data)).collect();
    let at = Lpa(journal.first).plus(u64::from(record.first));
    write_pages(core, at, &pages).map_err(|error| core.broken(error))?;
    let line = JournalSlot::encode(record.first, blocks.len() as u32, sequence, ino);
    tx.write(journal.slot_address(record.slot), &line, Structure::Journal);
    Ok(record)
}

fn write_pages<D: BlockPort + WriteLog>(
    core: &Core<D>,
    mut at: Lpa,
    pages: &[&[u8]],
) -> amphi_device::Result<()> {
    let mut tickets = Vec::new();
    for command in pages.chunks(WRITE_RUN_MAX) {
        tickets.push(core.device.submit_write(at, command, Structure::Journal)?);
        at = at.plus(command.len() as u64);
    }
    for ticket in tickets {
        ticket.wait()?;
    }
    core.settle_blocks()
}

/// Empties the slot of a record whose pages are durable in place.
///
/// # Errors
/// The device's; the record then stays for the next mount.
pub fn retire<D: BlockPort + WriteLog>(core: &Core<D>, record: &Record) -> amphi_device::Result<()> {
    // Eight bytes are never torn, and zero is what makes a slot empty.
    let at = core.journal.slot_address(record.slot);
    core.device.persist(at, &[0; 8], None, Structure::Journal)?;
    core.journal.give_back(record);
    Ok(())
}

/// What a replay met.
#[derive(Debug, Default)]
pub struct Replay {
    /// Pages put in place.
    pub pages: u64,
    /// Slots that could not be used, with the reason.
    pub bad: Vec<(u32, String)>,
}

/// Puts the pages of every committed record in place, as the last step of recovery. Nobody uses the file system meanwhile, and the device has
/// recovered. Interrupted at any point, it can be repeated. Slots that make no sense are left as they are.
///
/// # Errors
/// The device's.
pub fn replay<D: BlockPort + WriteLog>(device: &D, layout: &Layout) -> amphi_device::Result<Replay> {
    let mut replay = Replay::default();
    if layout.journal_pages == 0 {
        return Ok(replay);
    }
    let mut slots = Box::new([0; PAGE]);
    if let Err(error) = read_page(device, Lpa(u64::from(layout.journal)), &mut slots)? {
        replay.bad.push((0, error.to_string()));
        return Ok(replay);
    }
    let mut done = Vec::new();
    for (number, line) in slots.as_chunks::<LINE>().0.iter().enumerate() {
        let outcome = match JournalSlot::decode(line, layout.journal_pages) {
            Ok(None) => continue,
            Ok(Some(slot)) if slot.kind.get() == RECORD_UPDATES => redo::replay(device, layout, &slot)?,
            Ok(Some(slot)) => put_in_place(device, layout, &slot)?,
            // Without transactions of the firmware a crash can tear a slot, which then does not count.
            Err(FormatError::Checksum(_)) if !device.contract().transactions => Ok(0),
            Err(error) => Err(error),
        };
        match outcome {
            Ok(pages) => {
                replay.pages += pages;
                done.push(number);
            }
            Err(error) => replay.bad.push((number as u32, error.to_string())),
        }
    }
    if !done.is_empty() {
        device.flush()?;
    }
    for number in done {
        let at = Lpa(u64::from(layout.journal)).byte(number * LINE);
        device.persist(at, &[0; 8], None, Structure::Journal)?;
    }
    Ok(replay)
}

/// Reads a page; one with a media error is no use to a record.
///
/// # Errors
/// Every other error of the device.
pub fn read_page<D: BlockPort>(
    device: &D,
    at: Lpa,
    into: &mut [u8; PAGE],
) -> amphi_device::Result<std::result::Result<(), FormatError>> {
    match device.read(at, &mut into[..], Structure::Journal) {
        Ok(()) => Ok(Ok(())),
        Err(amphi_device::Error::Media(_)) => {
            Ok(Err(FormatError::Field("the data journal", "page: it is unreadable")))
        }
        Err(error) => Err(error),
    }
}

/// Writes one record's pages to their places; the outer error is the device's. Nothing is written unless the record's descriptors make sense.
fn put_in_place<D: BlockPort>(
    device: &D,
    layout: &Layout,
    slot: &JournalSlot,
) -> amphi_device::Result<std::result::Result<u64, FormatError>> {
    let blocks = slot.blocks.get() as usize;
    let first = Lpa(u64::from(layout.journal)).plus(u64::from(slot.first.get()));
    let descriptors = record_descriptors(blocks);
    let mut targets = Vec::with_capacity(blocks);
    for index in 0..descriptors {
        let mut page = Box::new([0; PAGE]);
        let read = read_page(device, first.plus(index as u64), &mut page)?;
        match read.and_then(|()| JournalHeader::decode(&page, slot)) {
            Ok(found) => targets.extend(found.iter().map(|target| target.get())),
            Err(error) => return Ok(Err(error)),
        }
    }
    if targets.len() != blocks || !targets.iter().all(|target| layout.holds_data(*target, 1)) {
        return Ok(Err(FormatError::Field("a journal record", "place of a page")));
    }
    let mut page = Box::new([0; PAGE]);
    for (index, target) in targets.iter().enumerate() {
        if let Err(error) = read_page(device, first.plus((descriptors + index) as u64), &mut page)? {
            return Ok(Err(error));
        }
        device.write(Lpa(u64::from(*target)), &page[..], Structure::Journal)?;
    }
    Ok(Ok(blocks as u64))
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
