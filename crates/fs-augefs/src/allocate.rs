//! `fallocate` and `seek`: space held for writes to come, holes, zeros.

use std::sync::Arc;

use amphi_device::{BlockPort, MemoryArea};
use amphi_names::{note_write, regular, shed_capability};
use amphi_vfs::{Allocate, Cred, Error, Result, Seek};

use crate::core::Core;
use crate::file::{self, has_data, promise_nodes};
use crate::format::{ADDRESSES, FILE_BYTES_MAX, PAGE};
use crate::inode::{Inode, State};
use crate::writeback::{Edit, write_back};

const PAGE_BYTES: u64 = PAGE as u64;

/// See [`amphi_vfs::FileSystem::allocate`]. What it does is durable when it returns.
///
/// # Errors
/// As there.
pub fn allocate<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    inode: &Arc<Inode<D>>,
    offset: u64,
    length: u64,
    what: Allocate,
    cred: &Cred,
) -> Result<()> {
    regular(inode.file_type)?;
    core.names.health.writable()?;
    if length == 0 {
        return Err(Error::Invalid("an empty range"));
    }
    let end = offset.saturating_add(length);
    let (reserves, keep_size) = (what.reserves(), what.keeps_size());
    if reserves && end > FILE_BYTES_MAX {
        return Err(Error::TooLarge);
    }
    let end = end.min(FILE_BYTES_MAX).max(offset);
    let mut state = inode.state.write();
    if state.gone {
        return Err(Error::Stale(inode.ino));
    }
    shed_capability(core, inode, &mut state)?;
    let mut edit = Edit::default();
    if reserves && offset < end {
        edit.held = offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES);
        hold(core, inode, &mut state, &edit)?;
    }
    if what.clears() && offset < end {
        clear(core, inode, &mut state, offset..end, &mut edit, reserves)?;
    }
    if !keep_size {
        state.size = state.size.max(end);
    }
    note_write(core, &mut state, cred);
    state.part.changed = true;
    core.cache.note_dirty(inode);
    write_back(core, inode, &mut state, &edit)
}

/// Takes the space that a range has not.
fn hold<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    inode: &Inode<D>,
    state: &mut State<D>,
    edit: &Edit,
) -> Result<()> {
    let mut wanted = 0;
    let mut page = edit.held.start;
    while page < edit.held.end {
        let end = edit.held.end.min((page / ADDRESSES as u64 + 1) * ADDRESSES as u64);
        let domain = core.domain(inode.ino);
        let _gate = domain.gate.read();
        let addresses = core.addresses(domain, (inode.ino, state), page, end)?;
        let dirty = state.part.file.dirty.range(page..end).count();
        let holes = addresses.iter().filter(|address| address.is_hole()).count();
        let promised = state.part.file.dirty.range(page..end);
        let promised = promised
            .filter(|page| state.part.file.pages.get(**page).is_some_and(|page| page.promised))
            .count();
        debug_assert!(promised <= dirty, "what is promised is dirty");
        wanted += (holes - promised) as u64;
        if wanted > core.space.free() {
            return Err(Error::NoSpace);
        }
        page = end;
    }
    promise_nodes(core, &mut state.part, edit.held.clone(), wanted)
}

/// Makes a range read as zeros: whole pages become holes, or stay held; others are written.
fn clear<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    inode: &Arc<Inode<D>>,
    state: &mut State<D>,
    bytes: std::ops::Range<u64>,
    edit: &mut Edit,
    held: bool,
) -> Result<()> {
    let whole = bytes.start.div_ceil(PAGE_BYTES)..bytes.end / PAGE_BYTES;
    let edges = if whole.start > whole.end {
        [bytes.clone(), bytes.end..bytes.end]
    } else {
        [bytes.start..whole.start * PAGE_BYTES, whole.end * PAGE_BYTES..bytes.end]
    };
    for edge in edges.into_iter().filter(|edge| !edge.is_empty()) {
        file::zero_in_page(core, inode, state, edge)?;
    }
    if !whole.is_empty() {
        if held {
            // The space stays: pages with blocks are written over with zeros.
            return file::zero_pages(core, inode, state, whole);
        }
        core.drop_pages(&mut state.part, whole.clone());
        edit.holes = whole;
    }
    Ok(())
}

/// Where the next data, or the next hole, of a file is.
///
/// # Errors
/// As [`amphi_vfs::FileSystem::seek`].
pub fn seek<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    inode: &Inode<D>,
    offset: u64,
    what: Seek,
) -> Result<u64> {
    regular(inode.file_type)?;
    let state = inode.state.read();
    if offset >= state.size {
        return Err(Error::NoData);
    }
    let (mut page, end) = (offset / PAGE_BYTES, state.size.div_ceil(PAGE_BYTES));
    let domain = core.domain(inode.ino);
    let _gate = domain.gate.read();
    while page < end {
        let next = (page / ADDRESSES as u64 + 1) * ADDRESSES as u64;
        if what == Seek::Data {
            // Nothing is where neither a node nor a dirty page is.
            let index = (page / ADDRESSES as u64) as u32;
            let node = state.part.nodes.range(index..).next();
            let node = node.map(|(index, _)| u64::from(*index) * ADDRESSES as u64);
            let dirty = state.part.file.dirty.range(page..).next().copied();
            let Some(nearest) = node.into_iter().chain(dirty).min() else { return Err(Error::NoData) };
            if nearest >= next {
                page = nearest;
                continue;
            }
        }
        let next = next.min(end);
        let addresses = core.addresses(domain, (inode.ino, &state), page, next)?;
        let wanted = what == Seek::Data;
        let found = (page..).zip(addresses).find(|(page, at)| has_data(&state, *page, *at) == wanted);
        if let Some((found, _)) = found {
            return Ok(offset.max(found * PAGE_BYTES));
        }
        page = next;
    }
    if what == Seek::Data { Err(Error::NoData) } else { Ok(state.size) }
}
