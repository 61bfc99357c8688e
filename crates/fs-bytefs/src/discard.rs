//! Discarding free blocks: tells the device which pages hold nothing, so that its garbage collection need not move them (`amphi fstrim`).

use amphi_device::{BlockPort, Lpa, WriteLog};
use amphi_vfs::Result;

use crate::core::{Core, io_error};
use crate::format::PAGE;

/// Trims the free runs of at least `shortest` pages; returns how many bytes were trimmed. Others go on using the file system: of one group of 512 pages at a
/// time the free ones are taken meanwhile.
///
/// # Errors
/// [`amphi_vfs::Error::Io`], [`amphi_vfs::Error::ReadOnly`].
pub fn trim_free<D: BlockPort + WriteLog>(core: &Core<D>, shortest: u64) -> Result<u64> {
    core.writable()?;
    let mut trimmed = 0;
    for group in 0..core.blocks.groups() {
        let taken = core.blocks.take_free(group);
        let mut outcome = Ok(());
        for run in &taken {
            if outcome.is_ok() && run.len >= shortest {
                outcome = core.device.trim(Lpa(run.start), run.len).map_err(io_error);
                trimmed += run.len * PAGE as u64;
            }
        }
        // They were free when they were taken.
        let sound = taken.iter().fold(true, |sound, run| core.blocks.release(*run) & sound);
        debug_assert!(sound, "nobody frees what another has taken");
        outcome?;
    }
    Ok(trimmed)
}
