//! Discarding free blocks: tells the device which pages hold nothing, so that its garbage collection need not
//! move them (`amphi fstrim`).

use std::ops::Range;

use amphi_device::{BlockPort, Lpa, WriteLog};
use amphi_vfs::{Error, Result};
use amphi_volume::io_error;

use crate::base::Base;
use crate::format::PAGE;

/// Of the pages `range`, trims the free runs of at least `shortest`; returns how many bytes were trimmed.
/// Others go on using the file system: of one group of 512 pages at a time the free ones are taken meanwhile.
///
/// # Errors
/// [`Error::Io`], [`Error::ReadOnly`]; [`Error::Invalid`] if nothing of the file system can be in the range.
pub fn trim_free<D: BlockPort + WriteLog>(base: &Base<D>, range: Range<u64>, shortest: u64) -> Result<u64> {
    if range.is_empty() || range.start >= base.layout.pages {
        return Err(Error::Invalid("nothing of the file system is in this range"));
    }
    base.writable()?;
    let mut trimmed = 0;
    for group in 0..base.blocks.groups() {
        let taken = base.blocks.take_free(group);
        let mut outcome = Ok(());
        let before = trimmed;
        for run in &taken {
            let (start, end) = (run.start.max(range.start), (run.start + run.len).min(range.end));
            let pages = end.saturating_sub(start);
            if outcome.is_ok() && pages > 0 && pages >= shortest {
                outcome = base.device.trim(Lpa(start), pages).map_err(io_error);
                trimmed += pages * PAGE as u64;
            }
        }
        // They were free when they were taken.
        let sound = taken.iter().fold(true, |sound, run| base.blocks.release(*run) & sound);
        debug_assert!(sound, "nobody frees what another has taken");
        outcome?;
        let taken_pages: u64 = taken.iter().map(|run| run.len).sum();
        if taken_pages > 0 && trimmed - before == taken_pages * PAGE as u64 {
            base.blocks.trimmed(group);
        }
    }
    Ok(trimmed)
}
