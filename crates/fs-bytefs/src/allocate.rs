//! Ranges of a file: reserving their space, freeing it, making them read as zeros.
//!
//! Reserved space is an extent marked unwritten: it has blocks, and reads as zeros until a write-back puts data there and clears the mark in the
//! same transaction.

use amphi_device::{BlockPort, WriteLog};
use amphi_names::shed_capability;
use amphi_vfs::{Allocate, Cred, Error, Ino, Result};

use crate::core::Core;
use crate::extent::Mapped;
use crate::file::{FILE_BYTES_MAX, note_write};
use crate::format::{Extent, PAGE};
use crate::inode::{Inode, State};
use crate::truncate::set_size;
use crate::tx::Tx;
use crate::writeback::{write_back, write_back_in};

/// Most pages reserved by one transaction: 256 MB.
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
    state.file()?;
    if length == 0 {
        return Err(Error::Invalid("an empty range"));
    }
    let end = offset.saturating_add(length);
    let (reserves, keep_size) = match what {
        Allocate::Reserve { keep_size } | Allocate::Zero { keep_size } => (true, keep_size),
        Allocate::PunchHole => (false, true),
    };
    if reserves && end > FILE_BYTES_MAX {
        return Err(Error::TooLarge);
    }
    shed_capability(core, &inode, &mut state)?;
    // Pages to come have blocks reserved of their own; with those in place, only holes are left to fill.
    write_back(core, &inode, &mut state, false)?;
    if reserves {
        let holes = holes_in(&state, offset / PAGE as u64, end.div_ceil(PAGE as u64))?;
        if holes > core.blocks.available() {
            return Err(Error::NoSpace);
        }
    }
    if what != (Allocate::Reserve { keep_size }) {
        clear(core, &inode, &mut state, offset, end)?;
    }
    if reserves {
        fill_holes(core, &inode, &mut state, offset / PAGE as u64, end.div_ceil(PAGE as u64))?;
    }
    note_write(core, &inode, &mut state, cred);
    if !keep_size && end > state.size {
        return set_size(core, &inode, &mut state, end, |_, _| Ok(()));
    }
    let mut tx = Tx::new(core, 0)?;
    tx.write_changed(&inode, &mut state);
    tx.commit()
}

fn holes_in<D: BlockPort + WriteLog>(state: &State<D>, first: u64, end: u64) -> Result<u64> {
    let tree = &state.file()?.tree;
    let (mut at, mut holes) = (first, 0);
    while at < end {
        let pages = match tree.map(at) {
            Mapped::Hole { pages } => {
                holes += pages.min(end - at);
                pages
            }
            Mapped::At { pages, .. } | Mapped::Unwritten { pages, .. } => pages,
        };
        at = at.saturating_add(pages);
    }
    Ok(holes)
}

/// Makes `offset .. end` read as zeros: whole pages lose their blocks, parts of pages are zeroed in the cache.
fn clear<D: BlockPort + WriteLog>(
    core: &Core<D>,
    inode: &Inode<D>,
    state: &mut State<D>,
    offset: u64,
    end: u64,
) -> Result<()> {
    if core.journals_data() && !state.file()?.dirty.is_empty() {
        // What follows counts when it is committed, so what was written before must count by then.
        write_back(core, inode, state, false)?;
    }
    let size_on_device = state.size_on_device;
    let (first, last) = (offset.div_ceil(PAGE as u64), end / PAGE as u64);
    let (head, tail) = ((offset % PAGE as u64) as usize, (end % PAGE as u64) as usize);
    let file = state.file_mut()?;
    if first > last {
        // The whole range lies within one page.
        return file.zero_in_page(core, size_on_device, last, head..tail);
    }
    if head > 0 {
        file.zero_in_page(core, size_on_device, first - 1, head..PAGE)?;
    }
    if tail > 0 {
        file.zero_in_page(core, size_on_device, last, 0..tail)?;
    }
    if first == last {
        return Ok(());
    }
    let mut tx = Tx::freeing(core, file.tree.insert_needs())?;
    file.forget(core, first, last);
    let gone = file.tree.remove(first, last, &mut || tx.allocate_block());
    state.data_pages = state.data_pages.saturating_sub(gone.free(&mut tx));
    if core.journals_data() {
        // The zeroed ends together with the middle.
        return write_back_in(core, inode, state, tx, true);
    }
    tx.write_changed(inode, state);
    tx.commit()
}

/// Gives the pages from `first` up to `end` that have none blocks that read as zeros.
fn fill_holes<D: BlockPort + WriteLog>(
    core: &Core<D>,
    inode: &Inode<D>,
    state: &mut State<D>,
    first: u64,
    end: u64,
) -> Result<()> {
    let mut at = first;
    while at < end {
        let step_end = end.min(at + STEP_PAGES);
        let holes = holes_in(state, at, step_end)?;
        if holes == 0 {
            at = step_end;
            continue;
        }
        let file = state.file_mut()?;
        // At worst every page becomes an extent of its own.
        let nodes = file.tree.insert_needs() + 4 + holes.div_ceil(128);
        let mut tx = Tx::new(core, holes + nodes)?;
        let mut added = 0;
        while at < step_end {
            let hole = match file.tree.map(at) {
                Mapped::Hole { pages } => pages.min(step_end - at),
                Mapped::At { pages, .. } | Mapped::Unwritten { pages, .. } => {
                    at += pages;
                    continue;
                }
            };
            let run = tx.allocate_blocks(hole, file.tree.goal(at));
            let reserved = Extent::new(at, run.start as u32, run.len as u32, true);
            file.tree.insert_extent(reserved, &mut || tx.allocate_block());
            at += run.len;
            added += run.len;
        }
        state.data_pages += added;
        tx.write_changed(inode, state);
        tx.commit()?;
    }
    Ok(())
}
