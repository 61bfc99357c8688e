//! What the translation layer does when flash fails: bad blocks are left out or retired, failed programs go
//! elsewhere, reads are retried or given up.
//!
//! A block that failed to program is *retired*: nothing more is programmed there, collection moves its pages
//! first of all, and then it is bad for good. Its header says so at once, so that no power-up takes it for a
//! good one.

use std::sync::atomic::Ordering;

use amphi_device::Result;

use crate::format::{BlockHeader, Mapping, Oob};
use crate::media::Media;
use crate::stats::{Cause, Counter};

impl Media {
    /// A die reads a page, again if ECC asks for it. Answers when the page has left the flash.
    pub(crate) fn time_page_read(&self, cause: Cause, from: u64, page: u64) -> u64 {
        let die = self.blocks.die_of(page);
        let read = self.time_read(cause, from, die);
        let media = &self.profile.media;
        if media.read_retry_ppm == 0 || !media.needs_retry(page, &self.oob(page)) {
            return read;
        }
        self.count().add(Counter::ReadRetries, 1);
        self.timing.retry_read(read, die)
    }

    /// As [`time_page_read`](Self::time_page_read), for a logical page.
    pub(crate) fn time_lpa_read(&self, cause: Cause, from: u64, lpa: u64) -> u64 {
        match self.mapping(lpa) {
            Mapping::At(page) => self.time_page_read(cause, from, page),
            Mapping::Never | Mapping::Trimmed(_) => from,
        }
    }

    /// Whether ECC can read the copy in a flash page.
    pub(crate) fn is_correctable(&self, page: u64, oob: &Oob) -> bool {
        oob.is_readable()
            && (self.profile.media.uncorrectable_ppb == 0 || !self.profile.media.is_uncorrectable(page, oob))
    }

    /// Tries the program of a page just handed out. If it fails, the page is spent and its block retired;
    /// answers whether it succeeded.
    ///
    /// # Errors
    /// Power was lost.
    pub(crate) fn can_program(&self, page: u64) -> Result<bool> {
        let media = &self.profile.media;
        let block = (page / self.layout.pages_per_block) as u32;
        if media.program_failure_ppb == 0 || !media.fails_to_program(page, self.block_header(block).erases) {
            return Ok(true);
        }
        self.count().add(Counter::ProgramFailures, 1);
        let now = self.timing.now();
        self.timing.program_page(now, self.blocks.die_of(page));
        self.power.step()?;
        self.image.write_struct(self.layout.oob_record(page), &Oob::spent());
        self.mark_bad(block, true)?;
        // The other pages of a checkpoint's block are needed where they are; it ends when it would be erased.
        if !self.block_header(block).mapping {
            self.blocks.retire(block);
            self.ring_collector();
        }
        Ok(false)
    }

    /// Notes in a block's header that it is bad, and whether it still holds pages.
    ///
    /// # Errors
    /// Power was lost.
    pub(crate) fn mark_bad(&self, block: u32, in_use: bool) -> Result<()> {
        self.power.step()?;
        let header = self.block_header(block);
        let bad = BlockHeader { bad: true, in_use, mapping: header.mapping && in_use, ..header };
        self.image.word(self.layout.block_header(u64::from(block))).store(bad.word(), Ordering::Release);
        Ok(())
    }
}
