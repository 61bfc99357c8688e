//! `fallocate` and `seek`: space held for writes to come, holes, zeros.

use std::ops::Range;
use std::sync::Arc;

use amphi_device::BlockPort;
use amphi_names::{Change, Changed, Need, Store, note_write, regular, shed_capability};
use amphi_segments::files;
use amphi_vfs::{Allocate, Cred, Error, Result, Seek};

use crate::core::Core;
use crate::file::{self, FILE_BYTES_MAX, load_pages};
use crate::format::PAGE;
use crate::inode::{Inode, State};
use crate::nodes::{first_page, spot};
use crate::writeback::write_back;

const PAGE_BYTES: u64 = PAGE as u64;

/// See [`amphi_vfs::FileSystem::allocate`].
///
/// # Errors
/// As there.
pub fn allocate<D: BlockPort>(
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
    if !state.size.is_multiple_of(PAGE_BYTES) && end > state.size && !keep_size {
        let size = state.size;
        load_pages(core, inode, &mut state, size..size + 1)?;
    }
    if reserves && offset < end {
        file::hold(core, inode, &mut state, offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES))?;
    }
    if what.clears() && offset < end {
        clear(core, inode, &mut state, offset..end, reserves)?;
    }
    // What was written before is there when this counts.
    write_back(core, inode, &mut state)?;
    if !keep_size {
        state.size = state.size.max(end);
        state.part.stored_size = state.size;
    }
    note_write(core, &mut state, cred);
    let mut change = core.begin(&Need::NOTHING)?;
    change.write_inode(inode, &mut state, Changed::Contents)?;
    change.commit()
}

/// Makes a range read as zeros: whole pages become holes, or stay held; others are written.
fn clear<D: BlockPort>(
    core: &Core<D>,
    inode: &Arc<Inode<D>>,
    state: &mut State<D>,
    bytes: Range<u64>,
    held: bool,
) -> Result<()> {
    let whole = bytes.start.div_ceil(PAGE_BYTES)..bytes.end / PAGE_BYTES;
    let edges = if whole.start > whole.end {
        [bytes.clone(), bytes.end..bytes.end]
    } else {
        [bytes.start..whole.start * PAGE_BYTES, whole.end * PAGE_BYTES..bytes.end]
    };
    for edge in edges.into_iter().filter(|edge| !edge.is_empty()) {
        zero_in_page(core, inode, state, edge)?;
    }
    if whole.is_empty() {
        return Ok(());
    }
    core.cache.drop_range(&mut state.part.file, &whole);
    core.balance(0)?;
    {
        let _gate = core.domain.gate.read();
        let cleared = core.punch(inode.ino.0 as u32, whole.clone()).and_then(|cleared| {
            state.part.blocks = state.part.blocks.saturating_sub(cleared);
            core.put_inode(inode, state)
        });
        if let Err(error) = &cleared {
            core.names.health.fail(error);
        }
        cleared?;
    }
    if held { file::hold(core, inode, state, whole) } else { Ok(()) }
}

/// Makes bytes of one page read as zeros; a page that is nowhere stays so.
fn zero_in_page<D: BlockPort>(
    core: &Core<D>,
    inode: &Arc<Inode<D>>,
    state: &mut State<D>,
    bytes: Range<u64>,
) -> Result<()> {
    let page = bytes.start / PAGE_BYTES;
    let address = {
        let _gate = core.domain.gate.read();
        core.addresses(inode.ino.0 as u32, page, page + 1)?[0]
    };
    files::zero_in_page(core, inode, state, bytes, address.block().is_some())?;
    core.cache.note_dirty(inode);
    Ok(())
}

/// Where the next data, or the next hole, of a file is.
///
/// # Errors
/// As [`amphi_vfs::FileSystem::seek`].
pub fn seek<D: BlockPort>(core: &Core<D>, inode: &Inode<D>, offset: u64, what: Seek) -> Result<u64> {
    regular(inode.file_type)?;
    let state = inode.state.read();
    if offset >= state.size {
        return Err(Error::NoData);
    }
    let (mut page, end) = (offset / PAGE_BYTES, state.size.div_ceil(PAGE_BYTES));
    let wanted = what == Seek::Data;
    let _gate = core.domain.gate.read();
    let ino = inode.ino.0 as u32;
    while page < end {
        let (index, word) = spot(page);
        let (words, next) = match core.reach(ino, index)? {
            Ok(nid) => {
                let next = first_page(index.map_or(Some(0), |index| Some(index + 1)));
                let words = word..word + (next - page) as usize;
                (core.parts(&[nid])?.nodes[&nid].addresses[words].to_vec(), next)
            }
            Err(next) => (Vec::new(), first_page(Some(next))),
        };
        let there = |at: u64| words.get((at - page) as usize).is_some_and(|known| known.block().is_some());
        let is_data = |at: u64| there(at) || state.part.file.dirty.contains(&at);
        let next = next.min(end);
        let found = if words.is_empty() && wanted {
            state.part.file.dirty.range(page..next).next().copied()
        } else {
            (page..next).find(|at| is_data(*at) == wanted)
        };
        if let Some(found) = found {
            return Ok(offset.max(found * PAGE_BYTES));
        }
        page = next;
    }
    if wanted { Err(Error::NoData) } else { Ok(state.size) }
}
