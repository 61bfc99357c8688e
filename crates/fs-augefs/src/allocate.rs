//! `fallocate`: space held for writes to come, holes, zeros.

use std::ops::Range;
use std::sync::Arc;

use amphi_device::{BlockPort, MemoryArea};
use amphi_names::note_write;
use amphi_segments::ranges::{begin_allocate, zero_edges, zero_in_page};
use amphi_vfs::{Allocate, Cred, Error, Result};

use crate::core::Core;
use crate::format::{ADDRESSES, PAGE};
use crate::nodes::slot_of;
use crate::part::{Inode, Part, State};
use crate::writeback::{Edit, write_back};

const PAGE_BYTES: u64 = PAGE as u64;

/// See [`amphi_vfs::FileSystem::allocate`]. What it does is durable when it returns.
///
/// # Errors
/// As there.
pub fn allocate<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    inode: &Arc<Inode>,
    range: (u64, u64),
    what: Allocate,
    cred: &Cred,
) -> Result<()> {
    let (mut state, bytes) = begin_allocate(core, inode, range, what)?;
    let mut edit = Edit::default();
    if what.reserves() && !bytes.is_empty() {
        edit.held = bytes.start / PAGE_BYTES..bytes.end.div_ceil(PAGE_BYTES);
        hold(core, inode, &mut state, &edit)?;
    }
    if what.clears() && !bytes.is_empty() {
        clear(core, inode, &mut state, bytes.clone(), &mut edit, what.reserves())?;
    }
    if !what.keeps_size() {
        state.size = state.size.max(bytes.end);
    }
    note_write(core, &mut state, cred);
    state.part.file.changed = true;
    core.cache.note_dirty(inode);
    write_back(core, inode, &mut state, &edit)
}

/// Takes the space that a range has not.
fn hold<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    inode: &Inode,
    state: &mut State,
    edit: &Edit,
) -> Result<()> {
    let mut wanted = 0;
    let mut page = edit.held.start;
    while page < edit.held.end {
        let end = edit.held.end.min((page / ADDRESSES as u64 + 1) * ADDRESSES as u64);
        let domain = core.domain(inode.ino);
        let _gate = domain.gate.read();
        let addresses = core.addresses(domain, (inode.ino, state), page, end)?;
        let holes = addresses.iter().filter(|address| address.is_hole()).count();
        let is_promised = |page: &u64| state.part.file.pages.get(*page).is_some_and(|page| page.beside.0);
        let promised = (page..end).filter(is_promised).count();
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
    inode: &Arc<Inode>,
    state: &mut State,
    bytes: Range<u64>,
    edit: &mut Edit,
    held: bool,
) -> Result<()> {
    let whole = zero_edges(core, inode, state, bytes)?;
    if !whole.is_empty() {
        if held {
            // The space stays: pages with blocks are written over with zeros.
            let mut pages = whole.map(|page| page * PAGE_BYTES..(page + 1) * PAGE_BYTES);
            return pages.try_for_each(|page| zero_in_page(core, inode, state, page));
        }
        core.drop_pages(&mut state.part, whole.clone());
        edit.holes = whole;
    }
    Ok(())
}

/// Promises blocks for so many pages, and for nodes of a range of pages that are not there.
///
/// # Errors
/// [`Error::NoSpace`]; then nothing is promised.
pub fn promise_nodes<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    part: &mut Part,
    pages: Range<u64>,
    blocks: u64,
) -> Result<()> {
    let indices = slot_of(pages.start).0..slot_of(pages.end - 1).0 + 1;
    let new = |index: &u32| !part.nodes.contains_key(index) && !part.promised_nodes.contains(index);
    let nodes: Vec<_> = indices.filter(new).collect();
    core.space.promise(blocks + nodes.len() as u64)?;
    part.promised_nodes.extend(nodes);
    Ok(())
}
