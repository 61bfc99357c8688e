//! Reading pages of which the log holds newer bytes than flash (ByteFS §4.4).

use amphi_device::Result;

use crate::format::Mapping;
use crate::log::Log;
use crate::log::versions::cover;
use crate::planted::{self, Bug};
use crate::stats::Cause;

impl Log {
    /// Loads bytes of one page: flash, with the log's newer versions over it. Answers when those that had to
    /// come from flash have come, at least `start`.
    ///
    /// # Errors
    /// The flash page cannot be read.
    pub(crate) fn load_logged(&self, start: u64, lpa: u64, offset: usize, into: &mut [u8]) -> Result<u64> {
        let (partition, page) = self.partition(lpa);
        let index = partition.index.read();
        let end = offset + into.len();
        let chunks = index.chunks_near(page, offset, end);
        let from_log = cover(chunks.iter().copied(), offset, end);
        if !from_log {
            self.read_flash(lpa, offset, into)?;
        }
        self.overlay(chunks, offset, into);
        let from_flash = (!from_log || planted::has(Bug::FlashReadAtLogHit))
            && matches!(self.mapping(lpa), Mapping::At(_));
        drop(index);
        if !from_flash {
            return Ok(start);
        }
        self.count().flash_read(Cause::Host, 1);
        // The lines wait for their flash page.
        Ok(if self.timing.is_free() { start } else { self.time_lpa_read(Cause::Host, start, lpa) })
    }

    /// A block read's page: from flash, merged with the log's newer chunks (ByteFS §4.4).
    ///
    /// # Errors
    /// The flash page cannot be read.
    pub(crate) fn read_merged(&self, lpa: u64, into: &mut [u8]) -> Result<()> {
        let (partition, page) = self.partition(lpa);
        let index = partition.index.read();
        self.read_flash(lpa, 0, into)?;
        self.overlay(index.chunks(page), 0, into);
        Ok(())
    }
}
