//! BA_PIN and BA_FLUSH: what moves pages between flash and the buffer.

use amphi_device::{Entry, EntryId, Error, Lpa, PAGE_BYTES, PinError, Result};

use super::{BaBuffer, Slot, Stage};
use crate::format::PAGE;
use crate::planted::{self, Bug};
use crate::stats::{Cause, Counter};

/// Pages of the buffer that are written to flash at once.
const TOGETHER: usize = 64;

impl BaBuffer {
    /// Checks a pin and takes a place in the table for it: from now on block commands to its pages are
    /// refused.
    ///
    /// # Errors
    /// As [`BaBuffer::pin`](amphi_device::BaBuffer::pin).
    pub(crate) fn begin_pin(&self, id: EntryId, offset: u64, at: Lpa, bytes: u64) -> Result<(usize, Entry)> {
        let entry = self.checked(id, offset, at, bytes)?;
        let mut table = self.table.write();
        for other in table.iter().flatten().map(|slot| &slot.entry) {
            if other.id == id {
                return Err(PinError::EntryInUse(id).into());
            }
            if other.has_page_of(at, entry.pages) {
                return Err(PinError::PagesOverlap(other.id).into());
            }
            if other.has_byte_of(offset, bytes) {
                return Err(PinError::WindowOverlap(other.id).into());
            }
        }
        let entries = table.len() as u32;
        let free = table.iter().position(Option::is_none).ok_or(PinError::TableFull { entries })?;
        self.memory.reserve(offset, bytes)?;
        table[free] = Some(Slot { entry, stage: Stage::Loading });
        Ok((free, entry))
    }

    fn checked(&self, id: EntryId, offset: u64, at: Lpa, bytes: u64) -> Result<Entry> {
        let expected = "a multiple of 4096";
        if !offset.is_multiple_of(PAGE) {
            return Err(Error::Misaligned { what: "pin's place in the window", value: offset, expected });
        }
        if bytes == 0 || !bytes.is_multiple_of(PAGE) {
            let expected = "a positive multiple of 4096";
            return Err(Error::Misaligned { what: "pin's length", value: bytes, expected });
        }
        let most = self.memory.bytes();
        if bytes > most {
            return Err(PinError::TooLong { what: "pin", bytes, most }.into());
        }
        if offset > most - bytes {
            return Err(Error::OutOfRange { what: "pin", at: offset, len: bytes, bytes: most });
        }
        self.media.check_page_count("pin", at, bytes / PAGE)?;
        Ok(Entry { id, offset, at, pages: bytes / PAGE })
    }

    /// Loads an entry's pages, and puts it into the table on the device.
    ///
    /// # Errors
    /// A page cannot be read: nothing is pinned then. Power was lost.
    pub(crate) fn finish_pin(&self, slot: usize, entry: &Entry) -> Result<()> {
        if let Err(cause) = self.load_pages(entry) {
            self.table.write()[slot] = None;
            return Err(cause);
        }
        let mut table = self.table.write();
        self.media.power.step()?;
        if !planted::has(Bug::PinNotRecorded) {
            self.record(slot, entry);
        }
        table[slot] = Some(Slot { entry: *entry, stage: Stage::Pinned });
        self.media.count().add(Counter::Pins, 1);
        Ok(())
    }

    fn load_pages(&self, entry: &Entry) -> Result<()> {
        let mut page = [0; PAGE_BYTES];
        for number in 0..entry.pages {
            let lpa = entry.at.0 + number;
            {
                let (partition, _) = self.media.partition(lpa);
                let _mapping = partition.index.read();
                self.media.read_flash(lpa, 0, &mut page)?;
            }
            self.media.power.step()?;
            if planted::has(Bug::LastPageNotLoaded) && number + 1 == entry.pages {
                continue;
            }
            self.memory.store(Self::window_page(entry, number), &page);
        }
        Ok(())
    }

    /// Begins a flush: no other one of this entry begins until it has ended.
    ///
    /// # Errors
    /// There is no such entry, or it is in use by another pin or flush.
    pub(crate) fn begin_flush(&self, id: EntryId) -> Result<(usize, Entry)> {
        let mut table = self.table.write();
        let found = table.iter_mut().enumerate().find_map(|(number, slot)| {
            slot.as_mut().filter(|slot| slot.entry.id == id).map(|slot| (number, slot))
        });
        match found {
            None => Err(PinError::NoSuchEntry(id).into()),
            Some((number, slot)) if slot.stage == Stage::Pinned => {
                slot.stage = Stage::Flushing;
                Ok((number, slot.entry))
            }
            Some(_) => Err(PinError::EntryBusy(id).into()),
        }
    }

    /// Writes an entry's pages, from `turn` on, and takes it out of the table.
    ///
    /// # Errors
    /// There is no room in flash: the entry then stays. Power was lost.
    pub(crate) fn finish_flush(&self, slot: usize, entry: &Entry, turn: usize) -> Result<()> {
        if planted::has(Bug::EntryGoneBeforeFlush) {
            self.media.power.step()?;
            self.erase_record(slot);
        }
        if let Err(cause) = self.write_entry(entry, turn) {
            if let Some(slot) = &mut self.table.write()[slot] {
                slot.stage = Stage::Pinned;
            }
            return Err(cause);
        }
        let mut table = self.table.write();
        self.media.power.step()?;
        self.erase_record(slot);
        table[slot] = None;
        self.media.count().add(Counter::EntryFlushes, 1);
        Ok(())
    }

    fn write_entry(&self, entry: &Entry, turn: usize) -> Result<()> {
        let mut pages = vec![0; TOGETHER.min(entry.pages as usize) * PAGE_BYTES];
        let dropped = u64::from(planted::has(Bug::LastPageNotFlushed) && entry.pages > 1);
        let mut number = 0;
        while number < entry.pages - dropped {
            let count = (entry.pages - dropped - number).min(TOGETHER as u64) as usize;
            let part = &mut pages[..count * PAGE_BYTES];
            self.memory.load(Self::window_page(entry, number), part);
            let from = entry.at.0 + number;
            let turn = turn.wrapping_add(number as usize);
            let (written, outcome) = self.media.write_pages(from, part.chunks_exact(PAGE_BYTES), turn);
            self.media.count().flash_write(Cause::Host, written as u64);
            outcome?;
            number += written as u64;
        }
        Ok(())
    }
}
