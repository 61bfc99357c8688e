//! Where a log lies, how it commits, and which part of the BA-buffer it uses.

use amphi_device::{BaBuffer, EntryId, Lpa};

use crate::error::{Error, Result};
use crate::format::PAGE;

/// The pages of a log: a header page, then the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// First page.
    pub at: Lpa,
    /// Pages, at least 2.
    pub pages: u64,
}

/// When a commit returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// When the records have been written by block: each commit writes whole pages.
    Sync,
    /// At once. A task writes the records by block in the background; a crash loses what it had not written.
    Async,
    /// When the records are in the BA-buffer and `BA_SYNC` has returned.
    Ba,
}

/// How a log is written. A log may be opened with other options each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// When a commit returns.
    pub mode: Mode,
    /// First byte of the window that the log uses, a multiple of 4096. Only for [`Mode::Ba`].
    pub window: u64,
    /// Bytes of each half of its part of the window, a positive multiple of 4096: one half takes records
    /// while the other goes to flash. Also, in every mode, how many bytes may gather in memory without a
    /// commit.
    pub half_bytes: u64,
    /// Names of the log's two entries in the BA-buffer's table. Always the same for one log.
    pub entries: [EntryId; 2],
}

impl Place {
    /// Bytes that records can take.
    #[must_use]
    pub(crate) const fn capacity(&self) -> u64 {
        (self.pages - 1) * PAGE as u64
    }

    /// The page that holds this byte of the records.
    pub(crate) const fn page_of(&self, at: u64) -> Lpa {
        self.at.plus(1 + at / PAGE as u64)
    }

    /// Refuses what is not on the device.
    pub(crate) fn check<D: BaBuffer>(&self, device: &D) -> Result<()> {
        if self.pages < 2 {
            return Err(Error::Place("a log takes two pages or more"));
        }
        match self.at.0.checked_add(self.pages) {
            Some(end) if end <= device.capacity_pages() => Ok(()),
            _ => Err(Error::Place("its pages are not on the device")),
        }
    }
}

impl Options {
    /// Refuses a part of the window that there is not.
    pub(crate) fn check<D: BaBuffer>(&self, device: &D) -> Result<()> {
        let page = PAGE as u64;
        if self.half_bytes == 0 || !self.half_bytes.is_multiple_of(page) || !self.window.is_multiple_of(page)
        {
            return Err(Error::Place("its part of the window is not made of pages"));
        }
        if self.entries[0] == self.entries[1] {
            return Err(Error::Place("its two entries have one name"));
        }
        if self.mode != Mode::Ba {
            return Ok(());
        }
        let end = self.half_bytes.checked_mul(2).and_then(|bytes| bytes.checked_add(self.window));
        match end {
            Some(end) if end <= device.ba_buffer()?.bytes => Ok(()),
            _ => Err(Error::Place("its part of the window is not in the window")),
        }
    }
}
