//! Ranges of a file: reserving their space, freeing it, making them read as zeros.
//!
//! Reserved space is an extent marked unwritten: it has blocks, and reads as zeros until a write-back puts
//! data there and clears the mark in the same transaction.

use amphi_device::{BlockPort, WriteLog};
use amphi_names::shed_capability;
use amphi_page_cache::{Mapped, Mapping, Pieces};
use amphi_vfs::{Allocate, Cred, Error, Ino, Result};

use crate::commit::tx::Tx;
use crate::core::Core;
use crate::data::file::{FILE_BYTES_MAX, note_write};
use crate::data::truncate::set_size;
use crate::data::writeback::{write_back, write_back_in};
use crate::format::{Extent, PAGE};
use crate::index::inode::{Inode, State};

/// Most pages reserved by one transaction: 256 MB. A power of 16.
const STEP_PAGES: u64 = 65_536;

/// Reserves, frees or zeroes a range; see [`amphi_vfs::FileSystem::allocate`].
///
/// # Errors
/// As there.
pub fn allocate<D: BlockPort + WriteLog>(
    core: &Core<D>,
    ino: Ino,
    offset: u64,
    length: u64,
    what: Allocate,
    cred: &Cred,
) -> Result<()> {
    let inode = core.inode(ino)?;
    core.writable()?;
    let mut state = inode.state.write();
    state.body.file()?;
    if length == 0 {
        return Err(Error::Invalid("an empty range"));
    }
    let end = offset.saturating_add(length);
    let reserves = what.reserves();
    if reserves && end > FILE_BYTES_MAX {
        return Err(Error::TooLarge);
    }
    shed_capability(core, &inode, &mut state)?;
    // Pages to come have blocks reserved of their own; with those in place, only holes are left to fill.
    write_back(core, &inode, &mut state, false)?;
    if reserves {
        let holes = state.body.file()?.tree.holes(offset / PAGE as u64, end.div_ceil(PAGE as u64));
        if holes > core.blocks.available() {
            return Err(Error::NoSpace);
        }
    }
    if what.clears() {
        clear(core, &inode, &mut state, offset, end)?;
    }
    if reserves {
        fill_holes(core, &inode, &mut state, offset / PAGE as u64, end.div_ceil(PAGE as u64))?;
    }
    note_write(core, &inode, &mut state, cred);
    if !what.keeps_size() && end > state.size {
        return set_size(core, &inode, &mut state, end, |_, _| Ok(()));
    }
    let mut tx = Tx::new(core, 0)?;
    tx.write_changed(&inode, &mut state);
    tx.commit()
}

/// Makes `offset .. end` read as zeros: whole pages lose their blocks, parts of pages are zeroed in the
/// cache.
fn clear<D: BlockPort + WriteLog>(
    core: &Core<D>,
    inode: &Inode,
    state: &mut State,
    offset: u64,
    end: u64,
) -> Result<()> {
    if core.journals_data() && !state.body.file()?.pages.is_clean() {
        // What follows counts when it is committed, so what was written before must count by then.
        write_back(core, inode, state, false)?;
    }
    let size_on_device = state.size_on_device;
    let Pieces { parts, whole } = Pieces::of(offset, end);
    let file = state.body.file_mut()?;
    for (index, bytes) in parts.into_iter().flatten() {
        file.zero_in_page(core, size_on_device, index, bytes)?;
    }
    if whole.is_empty() {
        return Ok(());
    }
    let mut tx = Tx::freeing(core, file.tree.insert_needs())?;
    file.forget(core, whole.clone());
    let gone = file.tree.remove(whole.start, whole.end, &mut || tx.allocate_block());
    state.data_pages = state.data_pages.saturating_sub(gone.free(&mut tx));
    if core.journals_data() {
        // The zeroed ends together with the middle.
        return write_back_in(core, inode, state, tx, true);
    }
    tx.write_changed(inode, state);
    tx.commit()
}

/// Gives the pages from `first` up to `end` that have none blocks that read as zeros; all of them, or none.
fn fill_holes<D: BlockPort + WriteLog>(
    core: &Core<D>,
    inode: &Inode,
    state: &mut State,
    first: u64,
    end: u64,
) -> Result<()> {
    let mut filled = Vec::new();
    let (mut at, mut step) = (first, STEP_PAGES);
    while at < end {
        match fill_step(core, inode, state, at, end.min(at + step), &mut filled) {
            Ok(()) => at = end.min(at + step),
            // What a step asks for at worst grows with it, so a smaller one may fit.
            Err(Error::NoSpace) if step > 1 => step /= 16,
            Err(error) => {
                give_back(core, inode, state, &filled)?;
                return Err(error);
            }
        }
    }
    Ok(())
}

/// One transaction of [`fill_holes`]. Notes the runs of pages that it filled.
fn fill_step<D: BlockPort + WriteLog>(
    core: &Core<D>,
    inode: &Inode,
    state: &mut State,
    first: u64,
    end: u64,
    filled: &mut Vec<(u64, u64)>,
) -> Result<()> {
    let holes = state.body.file()?.tree.holes(first, end);
    if holes == 0 {
        return Ok(());
    }
    let file = state.body.file_mut()?;
    // At worst every page becomes an extent of its own.
    let nodes = file.tree.insert_needs() + 4 + holes.div_ceil(128);
    let mut tx = Tx::new(core, holes + nodes)?;
    let (mut at, mut added) = (first, 0);
    while at < end {
        let hole = match file.tree.map(at) {
            Mapped::Hole { pages } => pages.min(end - at),
            Mapped::At { pages, .. } | Mapped::Unwritten { pages, .. } => {
                at += pages;
                continue;
            }
        };
        let run = tx.allocate_blocks(hole, file.tree.goal(at));
        let reserved = Extent::new(at, run.start as u32, run.len as u32, true);
        file.tree.insert_extent(reserved, &mut || tx.allocate_block());
        filled.push((at, run.len));
        at += run.len;
        added += run.len;
    }
    state.data_pages += added;
    tx.write_changed(inode, state);
    tx.commit()
}

/// Frees what a reservation that came to nothing has taken.
fn give_back<D: BlockPort + WriteLog>(
    core: &Core<D>,
    inode: &Inode,
    state: &mut State,
    filled: &[(u64, u64)],
) -> Result<()> {
    for &(first, pages) in filled {
        let file = state.body.file_mut()?;
        let mut tx = Tx::freeing(core, file.tree.insert_needs())?;
        let gone = file.tree.remove(first, first + pages, &mut || tx.allocate_block());
        state.data_pages = state.data_pages.saturating_sub(gone.free(&mut tx));
        tx.write_changed(inode, state);
        tx.commit()?;
    }
    Ok(())
}
