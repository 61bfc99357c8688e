//! The recovery manager: what capacitors give the time for when power fails, and what the next power-up does
//! about it (2B-SSD §III-A4).
//!
//! A power loss dumps the used chunks of the buffer and the table to reserved flash. One word, written last,
//! says that the dump is whole; only then does the memory lose what it held. Power-up copies the dump back
//! and clears the word last, so an interrupted one begins anew. A device that loses power while it restores
//! has its dump still and makes no other.
//!
//! The dump itself is never interrupted by the device: it has the energy, or the device would not have been
//! made. The process that emulates it may be killed meanwhile; then the memory is in the image as it was.

use std::sync::atomic::Ordering;

use amphi_device::{Error, Result};

use super::BaBuffer;
use crate::format::{DUMP_TABLE, DUMP_WHOLE, PAGE, PinRecord, dump_head_bytes};
use crate::planted::{self, Bug};
use crate::stats::{Cause, Counter};

impl BaBuffer {
    /// The word that says whether there is a dump, and its checksum.
    fn dump_word(&self) -> u64 {
        self.media.image.read_word(self.layout().dump_head)
    }

    /// Whether there is a whole dump.
    pub(crate) fn has_dump(&self) -> bool {
        self.dump_word() & DUMP_WHOLE != 0
    }

    fn table_bytes(&self) -> usize {
        (self.layout().pin_entries * PinRecord::BYTES) as usize
    }

    /// The checksum of what the dump's places hold.
    fn checksum(&self) -> u32 {
        let (image, layout) = (&self.media.image, self.layout());
        let mut table = vec![0; self.table_bytes()];
        image.read(layout.dump_head + DUMP_TABLE, &mut table);
        let mut page = [0; PAGE as usize];
        self.memory.used().fold(crc32c::crc32c(&table), |crc, (at, len)| {
            (at..at + len).step_by(page.len()).fold(crc, |crc, at| {
                image.read(layout.dump + at, &mut page);
                crc32c::crc32c_append(crc, &page)
            })
        })
    }

    /// Whether the process that emulates the dump lives on for another step.
    fn lives(&self) -> bool {
        let before = self.dump_steps.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| match left {
            u64::MAX => None,
            left => Some(left.saturating_sub(1)),
        });
        before != Ok(0)
    }

    /// Lets the process die after so many steps of the next dump.
    pub(crate) fn die_in_dump(&self, steps: u64) {
        self.dump_steps.store(steps, Ordering::Release);
    }

    /// Power is lost: dumps the buffer and its table. Afterwards the memory holds zeros.
    pub(crate) fn dump(&self) {
        let (image, layout) = (&self.media.image, self.layout());
        if self.has_dump() {
            return;
        }
        let mut pages = dump_head_bytes(layout.pin_entries).div_ceil(PAGE);
        let mut chunks: Vec<_> = self.memory.used().collect();
        if planted::has(Bug::DumpCutShort) {
            // The energy ends before the last page.
            if let Some((_, len)) = chunks.last_mut() {
                *len -= PAGE;
            }
        }
        for &(at, len) in &chunks {
            for at in (at..at + len).step_by(PAGE as usize) {
                if !self.lives() {
                    return;
                }
                image.copy(layout.memory + at, layout.dump + at, PAGE as usize);
                pages += 1;
            }
        }
        if !self.lives() {
            return;
        }
        if !planted::has(Bug::TableNotDumped) {
            image.copy(layout.pins, layout.dump_head + DUMP_TABLE, self.table_bytes());
        }
        if !self.lives() {
            return;
        }
        let whole = DUMP_WHOLE | u64::from(self.checksum());
        image.word(layout.dump_head).store(whole, Ordering::Release);
        self.media.count().flash_write(Cause::Recovery, pages);
        self.media.count().add(Counter::Dumps, 1);
        for (at, len) in self.memory.used() {
            if !self.lives() {
                return;
            }
            image.zero(layout.memory + at, len as usize);
        }
        image.zero(layout.pins, self.table_bytes());
    }

    /// Power is back: restores what was dumped, and reads the table.
    ///
    /// # Errors
    /// The dump or the table is damaged; power was lost again.
    pub(crate) fn restore(&self) -> Result<()> {
        if self.has_dump() {
            self.restore_dump()?;
        }
        self.read_table()
    }

    fn restore_dump(&self) -> Result<()> {
        let (image, layout, power) = (&self.media.image, self.layout(), &self.media.power);
        if self.dump_word() as u32 != self.checksum() {
            return Err(Error::Image("the dump of the BA-buffer fails its checksum".to_owned()));
        }
        let clear = || image.word(layout.dump_head).store(0, Ordering::Release);
        if planted::has(Bug::DumpClearedEarly) {
            clear();
        }
        let mut pages = dump_head_bytes(layout.pin_entries).div_ceil(PAGE);
        for (at, len) in self.memory.used() {
            for at in (at..at + len).step_by(PAGE as usize) {
                power.step()?;
                image.copy(layout.dump + at, layout.memory + at, PAGE as usize);
                pages += 1;
            }
        }
        power.step()?;
        if !planted::has(Bug::TableNotRestored) {
            image.copy(layout.dump_head + DUMP_TABLE, layout.pins, self.table_bytes());
        }
        power.step()?;
        if !planted::has(Bug::DumpKept) {
            clear();
        }
        self.media.count().flash_read(Cause::Recovery, pages);
        self.media.count().add(Counter::Restores, 1);
        self.restored.store(pages * PAGE, Ordering::Relaxed);
        Ok(())
    }

    /// Spends the time that restoring took: flash to buffer over the internal path.
    pub(crate) fn wait_for_restore(&self) {
        let bytes = self.restored.swap(0, Ordering::Relaxed);
        let timing = &self.media.timing;
        if bytes > 0 && !timing.is_free() {
            timing.wait(timing.flash_to_buffer(timing.now(), bytes));
        }
    }
}
