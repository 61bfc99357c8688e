//! Discarding free blocks: tells the device which pages hold nothing, so that its garbage collection need not
//! move them (`amphi fstrim`).

use std::ops::Range;

use amphi_device::{BlockPort, WriteLog};
use amphi_vfs::Result;
use amphi_volume::Discard;

use crate::base::Base;
use crate::format::PAGE;

/// As [`amphi_vfs::FileSystem::discard_free`]. Others go on using the file system: of one group of 512 pages
/// at a time the free ones are taken meanwhile.
///
/// # Errors
/// [`amphi_vfs::Error::Io`], [`amphi_vfs::Error::ReadOnly`], [`amphi_vfs::Error::Invalid`].
pub fn discard_free<D: BlockPort + WriteLog>(
    base: &Base<D>,
    range: Range<u64>,
    shortest: u64,
) -> Result<u64> {
    base.writable()?;
    let mut discard = Discard::new(&*base.device, range, shortest, base.layout.pages)?;
    for group in 0..base.blocks.groups() {
        let taken = base.blocks.take_free(group);
        let before = discard.bytes();
        let outcome = taken.iter().try_for_each(|run| discard.free_run(run.start..run.start + run.len));
        // They were free when they were taken.
        let sound = taken.iter().fold(true, |sound, run| base.blocks.release(*run) & sound);
        debug_assert!(sound, "nobody frees what another has taken");
        outcome?;
        let taken_pages: u64 = taken.iter().map(|run| run.len).sum();
        if taken_pages > 0 && discard.bytes() - before == taken_pages * PAGE as u64 {
            base.blocks.trimmed(group);
        }
    }
    Ok(discard.bytes())
}
