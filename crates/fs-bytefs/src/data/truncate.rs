//! Lengths: cutting and growing files, and freeing what lies beyond the end or below a deleted inode.
//!
//! A transaction frees a bounded number of pages. What is larger goes in steps, last pages first, with the
//! inode in the orphan table meanwhile, so that the next mount finishes what a crash interrupted. The new
//! size, or the deletion, is in the first of them: to a caller it is one atomic step.

use std::sync::Arc;

use amphi_device::{BlockPort, WriteLog};
use amphi_vfs::{Error, Result};

use crate::commit::tx::Tx;
use crate::core::Core;
use crate::data::file::FILE_BYTES_MAX;
use crate::data::writeback::write_back;
use crate::format::PAGE;
use crate::index::extent::FILE_PAGES_MAX;
use crate::index::inode::{Inode, State, number};
use crate::planted::{self, Bug};

/// Most pages freed by one transaction: 256 MB, 128 bitmap lines if they are contiguous.
const STEP_PAGES: u64 = 65_536;

/// Gives a file another size, after what was written before has been written back if it must count by then;
/// see [`amphi_names::Store::resize`].
///
/// # Errors
/// As [`set_size`].
pub fn resize<D: BlockPort + WriteLog>(
    core: &Core<D>,
    inode: &Inode,
    state: &mut State,
    size: u64,
    apply: impl FnOnce(&mut Tx<'_, D>, &mut State) -> Result<()>,
) -> Result<()> {
    if size > state.size_on_device || core.journals_data() {
        // Growing, and any cut where data are journaled, writes back what was written before, in a
        // transaction of its own: not with the times of this change, which is all or nothing (crash lab:
        // bytefs/seq1-415@3:none, bytefs-journal/seq1-411@3:none).
        write_back(core, inode, state, false)?;
    }
    set_size(core, inode, state, size, apply)
}

/// Sets the size of a regular file; `apply` changes its attributes in the same transaction. The inode is
/// durable on return.
///
/// # Errors
/// [`Error::TooLarge`], [`Error::Io`], and [`Error::NoSpace`] if the orphan table is full; then nothing has
/// changed.
pub fn set_size<D: BlockPort + WriteLog>(
    core: &Core<D>,
    inode: &Inode,
    state: &mut State,
    size: u64,
    apply: impl FnOnce(&mut Tx<'_, D>, &mut State) -> Result<()>,
) -> Result<()> {
    state.body.file()?;
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
    let mut tx = Tx::new(core, 0)?;
    apply(&mut tx, state)?;
    state.size = size;
    state.size_on_device = size;
    free_from(inode, state, from, slot, tx)?;
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
    if core.journals_data() && !state.body.file()?.pages.is_clean() {
        // The new size counts when it is committed, so what was written before must count by then.
        write_back(core, inode, state, false)?;
    }
    let size_on_device = state.size_on_device;
    if size > size_on_device {
        state.body.file_mut()?.uncover_tail(core, size_on_device)?;
        if !state.body.file()?.pages.is_clean() {
            write_back(core, inode, state, false)?;
        }
    }
    if size < state.size {
        let size_on_device = state.size_on_device;
        let file = state.body.file_mut()?;
        file.clear_behind(core, size, size_on_device)?;
        file.forget(core, size.div_ceil(PAGE as u64)..u64::MAX);
    }
    Ok(())
}

/// Whether freeing the pages from `from` on takes several transactions, and a place in the orphan table that
/// the inode does not have yet.
fn needs_slot(state: &State, from: u64) -> bool {
    state.orphan_slot.is_none()
        && deletes_in_steps(state)
        && state.tree().is_some_and(|tree| tree.pages_from(from) > STEP_PAGES)
}

/// Commits `tx` with the inode as it stands, and frees its pages from `from` on; with the inode in orphan
/// slot `slot`, if it needs one, until the last step.
fn free_from<D: BlockPort + WriteLog>(
    inode: &Inode,
    state: &mut State,
    from: u64,
    slot: Option<u32>,
    mut tx: Tx<'_, D>,
) -> Result<()> {
    loop {
        let base = tx.base;
        let more = free_step(state, from, &mut tx);
        tx.write_changed(inode, state);
        if let Some(slot) = slot {
            tx.set_slot(slot, if more { number(inode) } else { 0 });
        }
        tx.commit()?;
        if !more {
            return Ok(());
        }
        tx = Tx::new(base, 0)?;
    }
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

/// Frees, in `tx`, a part of what an inode without names holds, and itself with the last part. Returns
/// whether that was all.
pub fn delete_step<D: BlockPort + WriteLog>(inode: &Inode, state: &mut State, tx: &mut Tx<'_, D>) -> bool {
    if let Ok(file) = state.body.file_mut() {
        file.forget(tx.base, 0..u64::MAX);
    }
    if free_step(state, 0, tx) {
        return false;
    }
    state.xattrs.free(tx);
    if !planted::has(Bug::InodeLeaked) {
        tx.free_inode(number(inode));
    }
    if let Some(slot) = state.orphan_slot.take() {
        tx.set_slot(slot, 0);
    }
    true
}

/// Whether deleting this inode takes more than one transaction.
pub fn deletes_in_steps(state: &State) -> bool {
    state.data_pages > STEP_PAGES
}

/// Finishes what an orphan slot of the last mount asks for.
///
/// # Errors
/// [`Error::Io`], [`Error::Corrupt`].
pub fn finish_orphan<D: BlockPort + WriteLog>(core: &Core<D>, inode: &Arc<Inode>, slot: u32) -> Result<()> {
    {
        let mut state = inode.state.write();
        if state.nlink > 0 {
            let from = state.size.div_ceil(PAGE as u64);
            return free_from(inode, &mut state, from, Some(slot), Tx::new(core, 0)?);
        }
        state.orphan_slot = Some(slot);
    }
    amphi_names::delete_orphan(core, inode)
}
