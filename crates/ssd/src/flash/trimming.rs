//! How trims enter the trim log, and leave it.

use std::sync::atomic::Ordering;

use amphi_device::Result;
use zerocopy::little_endian::{U32, U64};

use crate::format::{Mapping, TRIM_RECORDS, TrimRecord, control};
use crate::media::Media;

impl Media {
    /// Notes a trim. Answers its number on the sequence clock, or nothing if the log is full. Called with the
    /// partition's write lock held.
    ///
    /// # Errors
    /// Power was lost.
    pub(crate) fn append_trim(&self, lpa: u64, pages: u64) -> Result<Option<u64>> {
        let _order = self.trims.order.lock();
        let head = self.image.word(control!(trim_head)).load(Ordering::Acquire);
        let tail = self.image.word(control!(trim_tail)).load(Ordering::Acquire);
        if tail - head >= TRIM_RECORDS {
            return Ok(None);
        }
        self.power.step()?;
        let at = self.tick();
        let record =
            TrimRecord { lpa: U32::new(lpa as u32), pages: U32::new(pages as u32), at: U64::new(at) };
        self.image.write_struct(self.layout.trim_record(tail), &record);
        self.power.step()?;
        self.image.word(control!(trim_tail)).store(tail + 1, Ordering::Release);
        if (tail + 1 - head) * 4 > TRIM_RECORDS * 3 {
            self.ring_checkpointer();
        }
        Ok(Some(at))
    }

    /// Where a page is that protected memory knows of. Of a page that never was in flash, only the trim log
    /// remembers that it was trimmed.
    pub(crate) fn mapping_with_trims(&self, lpa: u64) -> Mapping {
        let mapping = self.mapping(lpa);
        match self.trims.before.at(lpa) {
            Some(at) if mapping == Mapping::Never => {
                self.set_mapping(lpa, Mapping::Trimmed(at));
                Mapping::Trimmed(at)
            }
            _ => mapping,
        }
    }

    /// Drops the records of trims before `start`: a checkpoint begun then is complete.
    ///
    /// # Errors
    /// Power was lost.
    pub(crate) fn drop_trims(&self, start: u64) -> Result<()> {
        let _order = self.trims.order.lock();
        let mut head = self.image.word(control!(trim_head)).load(Ordering::Acquire);
        let tail = self.image.word(control!(trim_tail)).load(Ordering::Acquire);
        while head < tail {
            let record: TrimRecord = self.image.read_struct(self.layout.trim_record(head));
            if record.at.get() >= start {
                break;
            }
            head += 1;
        }
        self.power.step()?;
        self.image.word(control!(trim_head)).store(head, Ordering::Release);
        Ok(())
    }
}
