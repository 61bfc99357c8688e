//! Telling the device which of its pages hold nothing, as `fstrim` asks.

use std::ops::Range;

use amphi_device::{BlockPort, Lpa, PAGE_BYTES};
use amphi_vfs::{Error, Result};

use crate::device::io_error;

/// What was asked for, and what is done of it. A file system shows it its free pages run by run.
pub struct Discard<'a, D> {
    device: &'a D,
    pages: Range<u64>,
    shortest: u64,
    discarded: u64,
}

impl<'a, D: BlockPort> Discard<'a, D> {
    /// Of the bytes `range` of the device, of which the file system has the first `pages` pages: what is free
    /// in runs of at least `shortest` bytes.
    ///
    /// # Errors
    /// [`Error::Invalid`] if nothing of the file system is in the range.
    pub fn new(device: &'a D, range: Range<u64>, shortest: u64, pages: u64) -> Result<Self> {
        let page = PAGE_BYTES as u64;
        let range = range.start.div_ceil(page)..range.end / page;
        if range.is_empty() || range.start >= pages {
            return Err(Error::Invalid("nothing of the file system is in this range"));
        }
        Ok(Self { device, pages: range, shortest: shortest.div_ceil(page), discarded: 0 })
    }

    /// Discards what was asked for of a run of free pages. Nobody can take a page of it meanwhile.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn free_run(&mut self, run: Range<u64>) -> Result<()> {
        let (start, end) = (run.start.max(self.pages.start), run.end.min(self.pages.end));
        let pages = end.saturating_sub(start);
        if pages > 0 && pages >= self.shortest {
            self.device.trim(Lpa(start), pages).map_err(io_error)?;
            self.discarded += pages;
        }
        Ok(())
    }

    /// Bytes discarded so far.
    pub const fn bytes(&self) -> u64 {
        self.discarded * PAGE_BYTES as u64
    }
}
