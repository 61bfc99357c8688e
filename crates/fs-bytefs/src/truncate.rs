//! Lengths: cutting and growing files, and freeing what lies beyond the end or below a deleted inode.
//!
//! A transaction frees a bounded number of pages. What is larger goes in steps, last pages first, with the inode in the orphan table meanwhile, so that
//! the next mount finishes what a crash interrupted. The new size, or the deletion, is in the first of them: to a caller it is one atomic step.

use amphi_device::{BlockPort, WriteLog};
use amphi_vfs::{Error, Result};

use crate::core::Core;
use crate::extent::FILE_PAGES_MAX;
use crate::file::FILE_BYTES_MAX;
use crate::format::PAGE;
use crate::inode::{Inode, State};
use crate::planted::{self, Bug};
use crate::tx::Tx;
use crate::writeback::write_back;
use crate::xattr;

/// Most pages freed by one transaction: 256 MB, 128 bitmap lines if they are contiguous.
const STEP_PAGES: u64 = 65_536;

/// Sets the size of a regular file. Times are the caller's; the inode is durable on return.
///
/// # Errors
/// [`Error::TooLarge`], [`Error::Io`], and [`Error::NoSpace`] if the orphan table is full; then nothing has changed.
pub fn set_size<D: BlockPort + WriteLog>(
    core: &Core<D>,
    inode: &Inode,
    state: &mut State,
    size: u64,
) -> Result<()> {
    state.file()?;
    if size > FILE_BYTES_MAX {
        return Err(Error::TooLarge);
    }
    let from = size.div_ceil(PAGE as u64);
    // Everything that can fail comes before the first change in DRAM, the slot first of all.
    let slot =
        if needs_slot(state, from) { Some(core.orphans.take_slot().ok_or(Error::NoSpace)?) } else { None };
    if let Err(error) = prepare(core, inode, state, size) {
        slot.into_iter().for_each(|slot| core.orphans.return_slot(slot));
        return Err(error);
    }
    state.size = size;
    state.size_on_device = size;
    match slot {
        Some(slot) => free_in_steps(core, inode, state, from, slot)?,
        None => free_from(core, inode, state, from)?,
    }
    state.attributes_dirty = false;
    Ok(())
}

/// Makes the cached pages and what the device holds fit for the new size.
fn prepare<D: BlockPort + WriteLog>(
    core: &Core<D>,
    inode: &Inode,
    state: &mut State,
    size: u64,
) -> Result<()> {
    if core.journals_data() && !state.file()?.dirty.is_empty() {
        // The new size counts when it is committed, so what was written before must count by then.
        write_back(core, inode, state, false)?;
    }
    let size_on_device = state.size_on_device;
    if size > size_on_device {
        state.file_mut()?.uncover_tail(core, size_on_device)?;
        if !state.file()?.dirty.is_empty() {
            write_back(core, inode, state, false)?;
        }
    }
    if size < state.size {
        let size_on_device = state.size_on_device;
        let file = state.file_mut()?;
        file.clear_behind(core, size, size_on_device)?;
        file.forget(core, size.div_ceil(PAGE as u64), u64::MAX);
    }
    Ok(())
}

/// Whether freeing the pages from `from` on takes several transactions, and a place in the orphan table that the inode does not have yet.
fn needs_slot(state: &State, from: u64) -> bool {
    state.orphan_slot.is_none()
        && deletes_in_steps(state)
        && state.tree().is_some_and(|tree| tree.pages_from(from) > STEP_PAGES)
}

/// Commits the inode as it stands and frees its pages from `from` on.
fn free_from<D: BlockPort + WriteLog>(
    core: &Core<D>,
    inode: &Inode,
    state: &mut State,
    from: u64,
) -> Result<()> {
    loop {
        let mut tx = Tx::new(core, 0)?;
        let more = free_step(state, from, &mut tx);
        inode.write_changed(core, state, &mut tx);
        tx.commit()?;
        if !more {
            return Ok(());
        }
    }
}

/// As [`free_from`], with the inode in orphan slot `slot` until the last step.
fn free_in_steps<D: BlockPort + WriteLog>(
    core: &Core<D>,
    inode: &Inode,
    state: &mut State,
    from: u64,
    slot: u32,
) -> Result<()> {
    loop {
        let mut tx = Tx::new(core, 0)?;
        let more = free_step(state, from, &mut tx);
        inode.write_changed(core, state, &mut tx);
        tx.set_orphan(slot, if more { inode.ino } else { 0 });
        tx.commit()?;
        if !more {
            break;
        }
    }
    core.orphans.return_slot(slot);
    Ok(())
}

/// Frees up to [`STEP_PAGES`] pages at or beyond `from`, the last ones first. Returns whether there are more.
fn free_step<D: BlockPort + WriteLog>(state: &mut State, from: u64, tx: &mut Tx<'_, D>) -> bool {
    let Some(tree) = state.tree_mut() else { return false };
    let mut freed = 0;
    while let Some(last) = tree.last() {
        let (first, pages) = (last.file_page.get(), u64::from(last.len()));
        if first + pages <= from {
            break;
        }
        if freed == STEP_PAGES {
            state.data_pages -= freed;
            return true;
        }
        let cut = from.max(first + pages.saturating_sub(STEP_PAGES - freed)).max(first);
        let gone = tree.remove(cut, FILE_PAGES_MAX, &mut || unreachable!("a cut at the end adds no extent"));
        if !planted::has(Bug::ExtentLeaked) {
            freed += gone.free(tx);
        }
    }
    state.data_pages = state.data_pages.saturating_sub(freed);
    false
}

/// Deletes an inode that has neither names nor references: frees its pages, its number and its orphan slot. `tx` may already hold the removal of its last
/// name; it is committed in any case.
///
/// # Errors
/// [`Error::Io`].
pub fn delete<'a, D: BlockPort + WriteLog>(
    core: &'a Core<D>,
    inode: &Inode,
    state: &mut State,
    mut tx: Tx<'a, D>,
) -> Result<()> {
    debug_assert!(state.nlink == 0 && !state.gone, "only what has no name is deleted, and once");
    if let Ok(file) = state.file_mut() {
        file.forget(core, 0, u64::MAX);
    }
    loop {
        let more = free_step(state, 0, &mut tx);
        if !more {
            break;
        }
        debug_assert!(state.orphan_slot.is_some(), "what is deleted in steps stands in the orphan table");
        inode.write_changed(core, state, &mut tx);
        tx.commit()?;
        tx = Tx::new(core, 0)?;
    }
    xattr::free(state, &mut tx);
    if !planted::has(Bug::InodeLeaked) {
        tx.free_inode(inode.ino);
    }
    let slot = state.orphan_slot.take();
    if let Some(slot) = slot {
        tx.set_orphan(slot, 0);
    }
    state.gone = true;
    core.icache.remove(inode.ino);
    tx.commit()?;
    if let Some(slot) = slot {
        core.orphans.return_slot(slot);
    }
    Ok(())
}

/// Whether deleting this inode takes more than one transaction.
pub const fn deletes_in_steps(state: &State) -> bool {
    state.data_pages > STEP_PAGES
}

/// Finishes what an orphan slot of the last mount asks for.
///
/// # Errors
/// [`Error::Io`], [`Error::Corrupt`].
pub fn finish_orphan<D: BlockPort + WriteLog>(core: &Core<D>, inode: &Inode, slot: u32) -> Result<()> {
    let mut state = inode.state.write();
    state.orphan_slot = Some(slot);
    if state.nlink == 0 {
        let tx = Tx::new(core, 0)?;
        return delete(core, inode, &mut state, tx);
    }
    state.orphan_slot = None;
    let from = state.size.div_ceil(PAGE as u64);
    free_in_steps(core, inode, &mut state, from, slot)
}
