//! The commands of a BA-buffer, recorded. What a sync has not covered of the window is on its way, as a store
//! to a memory area is.

use amphi_device::{BaBuffer, BaPromise, Entry, EntryId, Lpa, PAGE_BYTES, Result, Structure};

use super::{By, Event, Next, Rig};

impl BaBuffer for Rig {
    fn ba_buffer(&self) -> Result<BaPromise> {
        self.ssd.ba_buffer()
    }

    fn pin(&self, id: EntryId, offset: u64, at: Lpa, bytes: u64) -> Result<()> {
        self.give_way();
        let entry = Entry { id, offset, at, pages: bytes / PAGE_BYTES as u64 };
        self.event(|| Event::Pin(entry));
        self.point(&Next::Pin(entry));
        let end = self.faults.change("BA_PIN")?;
        self.ssd.pin(id, offset, at, bytes)?;
        end.answer()
    }

    fn flush_entry(&self, id: EntryId) -> Result<()> {
        self.give_way();
        self.event(|| Event::FlushEntry(id));
        self.point(&Next::FlushEntry(id));
        let end = self.faults.change("BA_FLUSH")?;
        self.ssd.flush_entry(id)?;
        end.answer()
    }

    fn sync_entry(&self, id: EntryId) -> Result<()> {
        self.give_way();
        self.event(|| Event::SyncEntry(id));
        self.point(&Next::Arrival);
        let entry = self.ssd.entry_info(id)?;
        self.ssd.sync_entry(id)?;
        let me = amphi_rt::task::id();
        self.note(|recording| {
            recording.pending.retain(|pending| {
                let unit = &pending.unit;
                !(matches!(pending.by, By::Bytes { task, .. } if task == me)
                    && entry.has_byte_of(unit.at, unit.data.len() as u64))
            });
        });
        Ok(())
    }

    fn entry_info(&self, id: EntryId) -> Result<Entry> {
        self.ssd.entry_info(id)
    }

    fn entries(&self) -> Result<Vec<Entry>> {
        self.ssd.entries()
    }

    fn read_dma(&self, id: EntryId, into: &mut [u8], tag: Structure) -> Result<()> {
        self.ssd.read_dma(id, into, tag)
    }
}
