//! Shrinking and growing. What does not fit one handle goes in steps, with the inode in the list of orphans
//! until it is done, as on ext4.

use std::sync::Arc;

use amphi_device::BlockPort;
use amphi_names::Guard;
use amphi_page_cache::{Mapped, Mapping};
use amphi_vfs::{Error, Result};

use crate::core::Core;
use crate::data::file::{load, zero_in_page};
use crate::data::free::{free_step, step_credits};
use crate::data::writeback::{settled, write_back};
use crate::format::{BLOCK, FILE_BYTES_MAX};
use crate::index::inode::number;
use crate::index::part::{Body, Inode, Part, State};
use crate::journal::handle::Handle;
use crate::update::Update;

/// Locks an inode for a change of its size to `size`: nothing is in flight, and what a larger size would
/// uncover has been overwritten.
///
/// # Errors
/// [`Error::Io`].
pub fn lock_for_size<'a, D: BlockPort>(
    core: &Core<D>,
    inode: &'a Arc<Inode>,
    size: u64,
) -> Result<Guard<'a, Part>> {
    loop {
        let mut state = settled(inode);
        let old = state.size_on_disk;
        state.body.file()?;
        if size <= old || old.is_multiple_of(BLOCK as u64) {
            return Ok(state);
        }
        let last = old / BLOCK as u64;
        load(core, inode, &mut state, last, last)?;
        let is_hole = matches!(state.extents.map(last), Mapped::Hole { .. });
        if is_hole || !state.body.file()?.pages.is_dirty(last) {
            return Ok(state);
        }
        drop(state);
        write_back(core, inode)?;
    }
}

/// Gives a file, locked by [`lock_for_size`], another size; `apply` changes its attributes in the same
/// handle.
///
/// # Errors
/// [`Error::TooLarge`], [`Error::Io`].
pub fn set_size<D: BlockPort>(
    core: &Core<D>,
    inode: &Arc<Inode>,
    state: &mut State,
    size: u64,
    apply: impl FnOnce(&mut Update<'_, D>, &mut State) -> Result<()>,
) -> Result<()> {
    if size > FILE_BYTES_MAX {
        return Err(Error::TooLarge);
    }
    let shrinks = size < state.size;
    let from = size.div_ceil(BLOCK as u64) as u32;
    if shrinks && !size.is_multiple_of(BLOCK as u64) {
        zero_in_page(core, inode, state, size / BLOCK as u64, (size % BLOCK as u64) as usize..BLOCK)?;
    }
    let mut update = Update::begin(core, 0, step_credits(core) + 6)?;
    apply(&mut update, state)?;
    let mut handle = update.into_handle();
    state.size = size;
    if shrinks {
        // What was written below it and not written back is a hole until then.
        state.size_on_disk = size;
        let Part { body: Body::File(file), extents, .. } = &mut state.part else { return Ok(()) };
        let unmapped = file.forget(&core.pages, extents, u64::from(from)..u64::MAX);
        core.groups.unreserve(unmapped);
        file.version += 1;
        if file.is_clean() {
            core.dirty.remove(inode.ino, &inode.beside.dirty);
        }
        let listed = state.orphan;
        if !listed {
            core.orphans.add(&mut handle, number(inode))?;
        }
        let all = free_step(&mut handle, state, from)?;
        handle.write_inode(inode, state, true)?;
        return finish_steps(core, inode, state, handle, from, all, listed);
    }
    state.size_on_disk = size;
    handle.write_inode(inode, state, true)?;
    handle.finish();
    Ok(())
}

/// Goes on freeing blocks at or behind `from` until there are none, and takes the inode out of the list of
/// orphans unless it `stays`.
fn finish_steps<'a, D: BlockPort>(
    core: &'a Core<D>,
    inode: &Inode,
    state: &mut State,
    mut handle: Handle<'a, D>,
    from: u32,
    mut all: bool,
    stays: bool,
) -> Result<()> {
    while !all {
        handle.finish();
        handle = core.handle(step_credits(core))?;
        all = free_step(&mut handle, state, from)?;
        handle.write_inode(inode, state, true)?;
    }
    if !stays {
        core.orphans.remove(&mut handle, number(inode))?;
    }
    handle.finish();
    Ok(())
}

/// Finishes what the list of orphans of the last mount asks for.
///
/// # Errors
/// [`Error::Io`], [`Error::Corrupt`].
pub fn finish_orphan<D: BlockPort>(core: &Core<D>, inode: &Arc<Inode>) -> Result<()> {
    let mut state = inode.state.write();
    if state.nlink == 0 {
        drop(state);
        return amphi_names::delete_orphan(core, inode);
    }
    let from = state.size.div_ceil(BLOCK as u64) as u32;
    let mut handle = core.handle(step_credits(core))?;
    let all = free_step(&mut handle, &mut state, from)?;
    handle.write_inode(inode, &mut state, true)?;
    finish_steps(core, inode, &mut state, handle, from, all, false)
}
