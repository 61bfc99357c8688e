//! The commands of the BA-buffer, as the host issues them (2B-SSD §III-C).

use amphi_device::{BaBuffer, BaPromise, BytePort, Entry, EntryId, Lpa, PinError, Result, Structure};

use crate::core::Core;
use crate::planted::{self, Bug};
use crate::ssd::Ssd;
use crate::stats::{Command, Counter};

impl BaBuffer for Ssd {
    fn ba_buffer(&self) -> Result<BaPromise> {
        let core = self.core();
        core.pins()?;
        Ok(BaPromise { bytes: core.window_bytes(), entries: core.layout.pin_entries as u32 })
    }

    fn pin(&self, id: EntryId, offset: u64, at: Lpa, bytes: u64) -> Result<()> {
        let core = self.core();
        core.power.command()?;
        let pins = core.pins()?;
        let (slot, entry) = pins.begin_pin(id, offset, at, bytes)?;
        core.measured(Command::Pin, || {
            core.timing.wait(core.book_pin(&entry));
            core.power.check()?;
            pins.finish_pin(slot, &entry)
        })
    }

    fn flush_entry(&self, id: EntryId) -> Result<()> {
        let core = self.core();
        core.power.command()?;
        let pins = core.pins()?;
        let (slot, entry) = pins.begin_flush(id)?;
        let turn = core.blocks.take_turns(entry.pages as usize);
        core.measured(Command::FlushEntry, || {
            core.timing.wait(core.book_flush(&entry, turn));
            core.power.check()?;
            pins.finish_flush(slot, &entry, turn)
        })
    }

    fn sync_entry(&self, id: EntryId) -> Result<()> {
        let entry = self.entry_info(id)?;
        self.flush_lines(entry.offset, entry.bytes() as usize);
        self.fence();
        if !planted::has(Bug::SyncWithoutVerify) {
            self.verify_read()?;
        }
        self.core().count().add(Counter::EntrySyncs, 1);
        Ok(())
    }

    fn entry_info(&self, id: EntryId) -> Result<Entry> {
        let core = self.core();
        core.power.command()?;
        core.pins()?.entry(id)
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        let core = self.core();
        core.power.command()?;
        Ok(core.pins()?.entries())
    }

    fn read_dma(&self, id: EntryId, into: &mut [u8], tag: Structure) -> Result<()> {
        let entry = self.entry_info(id)?;
        let bytes = into.len() as u64;
        if bytes > entry.bytes() {
            return Err(PinError::TooLong { what: "DMA read of an entry", bytes, most: entry.bytes() }.into());
        }
        if planted::has(Bug::DmaFromFlash) {
            let mut page = [0; amphi_device::PAGE_BYTES];
            for (number, part) in into.chunks_mut(page.len()).enumerate() {
                self.core().read_page(entry.at.0 + number as u64, &mut page)?;
                part.copy_from_slice(&page[..part.len()]);
            }
            return Ok(());
        }
        self.load_dma(entry.offset, into, tag)
    }
}

impl Core {
    /// Books a pin: its pages' dies, and the path from flash to the buffer. Answers when it is done.
    fn book_pin(&self, entry: &Entry) -> u64 {
        let slot = self.timing.enter_queue();
        let fetched = self.timing.fetch_command();
        let read = self.book_pages(fetched, entry.at.0..entry.at.0 + entry.pages);
        let carried = self.timing.flash_to_buffer(fetched, entry.bytes());
        self.timing.complete(slot, self.timing.fixed_part(carried.max(read)))
    }

    /// Books a flush: the path from the buffer to flash, and the write buffer. Answers when it is done.
    fn book_flush(&self, entry: &Entry, turn: usize) -> u64 {
        let slot = self.timing.enter_queue();
        let carried = self.timing.buffer_to_flash(self.timing.fetch_command(), entry.bytes());
        let admitted = self.book_programs(carried, entry.pages, turn);
        self.timing.complete(slot, self.timing.fixed_part(admitted))
    }
}
