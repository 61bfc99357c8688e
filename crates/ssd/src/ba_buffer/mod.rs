//! The fourth firmware: device memory as a BA-buffer, onto which the host pins pages of the block side to
//! reach them by bytes (2B-SSD §III-A).
//!
//! The memory is volatile, and so is the table of what is pinned where. Capacitors give the time to dump both
//! to flash that nothing else uses ([`recovery`]). Between the two there is the LBA checker: a block command
//! passes it when it is submitted and again when it takes effect, so no page ever has two truths.
//!
//! Lock order: the table is outermost, before all locks of the media.

mod commands;
mod recovery;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use amphi_device::{Entry, EntryId, Error, Lpa, PinError, Result};
use amphi_rt::sync::RwLock;

use crate::format::{Layout, PAGE, PinRecord};
use crate::media::Media;
use crate::planted::{self, Bug};
use crate::protected::Protected;

/// How far an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Its pages are being loaded; the table on the device does not have it yet.
    Loading,
    Pinned,
    /// Its pages are being written.
    Flushing,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    entry: Entry,
    stage: Stage,
}

type Table = Box<[Option<Slot>]>;

/// The BA-buffer and its table.
#[derive(Debug)]
pub(crate) struct BaBuffer {
    pub(crate) memory: Protected,
    media: Arc<Media>,
    /// The table as the firmware works with it. Who holds it keeps entries from coming and going.
    table: RwLock<Table>,
    /// Bytes that the last power-up restored.
    restored: AtomicU64,
    /// Steps of a dump before the process that emulates it dies, for tests.
    dump_steps: AtomicU64,
}

impl BaBuffer {
    /// The buffer as the image has it, with nothing pinned before [`restore`](Self::restore).
    pub(crate) fn new(media: &Arc<Media>) -> Self {
        let entries = if planted::has(Bug::PinTableOfEight) { 8 } else { media.layout.pin_entries };
        Self {
            memory: Protected::new(&media.image, &media.layout),
            media: Arc::clone(media),
            table: RwLock::new(vec![None; entries as usize].into()),
            restored: AtomicU64::new(0),
            dump_steps: AtomicU64::new(u64::MAX),
        }
    }

    fn layout(&self) -> &Layout {
        &self.media.layout
    }

    /// The entries that the table on the device has.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let table = self.table.read();
        table.iter().flatten().filter(|slot| slot.stage != Stage::Loading).map(|slot| slot.entry).collect()
    }

    /// The entry of this name.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn entry(&self, id: EntryId) -> Result<Entry> {
        let found = self.entries().into_iter().find(|entry| entry.id == id);
        let mut entry = found.ok_or(PinError::NoSuchEntry(id))?;
        if planted::has(Bug::EntryInfoShort) && entry.pages > 1 {
            entry.pages -= 1;
        }
        Ok(entry)
    }

    /// The LBA checker: lets a block command to these pages pass. No entry comes or goes while the answer
    /// lives.
    ///
    /// # Errors
    /// One of the pages is pinned.
    pub(crate) fn pass(&self, at: Lpa, pages: u64) -> Result<impl Sized + '_> {
        let table = self.table.read();
        let hits = table.iter().flatten().map(|slot| slot.entry).filter(|entry| {
            let seen = entry.pages - u64::from(planted::has(Bug::LastPageNotGated));
            Entry { pages: seen, ..*entry }.has_page_of(at, pages)
        });
        match hits.min_by_key(|entry| entry.at) {
            Some(entry) => {
                let page = entry.at.max(at);
                Err(PinError::Pinned { page, entry: entry.id }.into())
            }
            None => Ok(table),
        }
    }

    /// Writes an entry into the table on the device. It is there from the last word on.
    fn record(&self, slot: usize, entry: &Entry) {
        let at = self.layout().pin_record(slot as u64);
        let word =
            |offset: u64, value: u64| self.media.image.word(at + offset).store(value, Ordering::Release);
        word(PinRecord::ID, u64::from(entry.id.0));
        word(PinRecord::OFFSET, entry.offset);
        word(PinRecord::AT, entry.at.0);
        word(PinRecord::PAGES, entry.pages);
    }

    /// Takes an entry out of the table on the device.
    fn erase_record(&self, slot: usize) {
        let at = self.layout().pin_record(slot as u64) + PinRecord::PAGES;
        self.media.image.word(at).store(0, Ordering::Release);
    }

    /// Reads the table that the device has.
    ///
    /// # Errors
    /// It holds what no device writes.
    fn read_table(&self) -> Result<()> {
        let mut table = self.table.write();
        for number in 0..table.len() {
            let record: PinRecord = self.media.image.read_struct(self.layout().pin_record(number as u64));
            table[number] = None;
            let Some(entry) = record.entry(self.layout()) else {
                if record.pages.get() == 0 {
                    continue;
                }
                return Err(Error::Image(format!("entry {number} of the pin table is out of range")));
            };
            let meets = |other: &Slot| {
                let other = &other.entry;
                other.id == entry.id
                    || other.has_page_of(entry.at, entry.pages)
                    || other.has_byte_of(entry.offset, entry.bytes())
            };
            if table.iter().flatten().any(meets) {
                return Err(Error::Image(format!("entry {number} of the pin table overlaps another")));
            }
            table[number] = Some(Slot { entry, stage: Stage::Pinned });
        }
        Ok(())
    }

    /// What of the image it takes, as address and length.
    pub(crate) fn in_image(&self) -> Vec<(u64, u64)> {
        let layout = self.layout();
        let mut parts = self.memory.in_image();
        parts.push((layout.pins, layout.pin_entries * PinRecord::BYTES));
        parts.push((layout.dump_head, crate::format::dump_head_bytes(layout.pin_entries)));
        if self.has_dump() {
            parts.extend(self.memory.used().map(|(at, len)| (layout.dump + at, len)));
        }
        parts
    }

    /// The page of the window for the n-th page of an entry.
    const fn window_page(entry: &Entry, number: u64) -> u64 {
        entry.offset + number * PAGE
    }
}
