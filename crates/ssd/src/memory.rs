//! The third firmware: device memory as an area of its own, which the host reaches by bytes, beside a block
//! side that never holds anything in it (RomeFS §3.2).
//!
//! A store that has arrived is in protected memory, so it is durable. Nothing moves between the area and
//! flash, and no firmware processor sees a store. There are no transactions; COMMIT, RECOVER and cleaning are
//! refused.

use amphi_device::{PAGE_BYTES, Result};

use crate::media::Media;
use crate::planted::{self, Bug};
use crate::protected::Protected;
use crate::stats::{Cause, Path};
use crate::store::Store;

/// A byte write arrives in the memory area.
///
/// # Errors
/// The host's disk is full; power was lost.
pub(crate) fn store(media: &Media, memory: &Protected, store: &Store<'_>) -> Result<()> {
    memory.reserve(store.at, store.data.len() as u64)?;
    media.power.step()?;
    memory.store(store.at, store.data);
    media.count().transfer(Path::ByteWrite, store.tag, store.data.len() as u64);
    Ok(())
}

/// After a loss: puts what had arrived of a write into the area. Answers whether that could be done.
pub(crate) fn store_at_loss(memory: &Protected, store: &Store<'_>) -> bool {
    let room = memory.reserve(store.at, store.data.len() as u64).is_ok();
    if room {
        memory.store(store.at, store.data);
    }
    room
}

/// A block read's page, from flash.
///
/// # Errors
/// The flash page cannot be read.
pub(crate) fn read_page(media: &Media, lpa: u64, into: &mut [u8]) -> Result<()> {
    let (partition, _) = media.partition(lpa);
    let _mapping = partition.index.read();
    media.read_flash(lpa, 0, into)
}

/// After a loss: writes a page whose block write was torn, some of its parts over the old contents. Answers
/// whether that could be done; a page that flash cannot read or has no room for stays as it was.
pub(crate) fn write_torn_page(media: &Media, lpa: u64, parts: &[(usize, &[u8])]) -> bool {
    let mut page = [0; PAGE_BYTES];
    media.power.run_firmware(true);
    let outcome = read_page(media, lpa, &mut page).and_then(|()| {
        for (offset, data) in parts {
            page[*offset..offset + data.len()].copy_from_slice(data);
        }
        let (written, outcome) =
            media.write_pages(lpa, std::iter::once(&page[..]), media.blocks.take_turns(1));
        media.count().flash_write(Cause::Host, written as u64);
        outcome
    });
    media.power.run_firmware(false);
    outcome.is_ok()
}

/// Power is lost: the capacitors' energy brings so many bytes to flash, from the first on, and what follows
/// is gone.
pub(crate) fn lose_from(memory: &Protected, saved_bytes: u64) {
    const ZEROS: [u8; PAGE_BYTES] = [0; PAGE_BYTES];
    for (at, len) in memory.used() {
        let pages = at.max(saved_bytes).next_multiple_of(PAGE_BYTES as u64)..at + len;
        pages.step_by(PAGE_BYTES).for_each(|page| memory.store(page, &ZEROS));
    }
}

/// At power-up: capacitors have kept the area, so there is nothing to find.
pub(crate) fn power_up(memory: &Protected) {
    if planted::has(Bug::MemoryForgotten) {
        for (at, _) in memory.used() {
            memory.store(at + 64, &[0; 64]);
        }
    }
}
