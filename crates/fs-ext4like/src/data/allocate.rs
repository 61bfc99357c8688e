//! Ranges of a file: reserving their space, freeing it, making them read as zeros.
//!
//! Reserved space is an extent marked unwritten: it has blocks, and reads as zeros until a write-back puts
//! data there and clears the mark.

use std::sync::Arc;

use amphi_device::BlockPort;
use amphi_names::Guard;
use amphi_vfs::{Allocate, Cred, Error, Ino, Result};

use crate::core::Core;
use crate::data::file::{FILE_BYTES_MAX, note_write, zero_in_page};
use crate::data::truncate::{free_range, lock_for_size, step_credits};
use crate::data::writeback::write_back;
use crate::format::{BLOCK, EXTENT_BLOCKS_MAX};
use crate::index::extent::{Mapped, Run};
use crate::index::inode::{Body, Inode, Part, State, number};

/// Extents allocated or freed in one handle.
const STEP_EXTENTS: usize = 16;

/// Reserves, frees or zeroes a range; see [`amphi_vfs::FileSystem::allocate`].
///
/// # Errors
/// As there.
pub fn allocate<D: BlockPort>(
    core: &Core<D>,
    ino: Ino,
    offset: u64,
    length: u64,
    what: Allocate,
    cred: &Cred,
) -> Result<()> {
    let inode = core.inode(ino)?;
    core.writable()?;
    inode.state.read().file()?;
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
    let end = end.min(FILE_BYTES_MAX);
    let mut state = lock_written(core, &inode, if keep_size { 0 } else { end })?;
    let (first, last) = ((offset.min(end) / BLOCK as u64) as u32, end.div_ceil(BLOCK as u64) as u32);
    let holes = if reserves { holes_in(&state, first, last) } else { 0 };
    let mut reserved = core.reserve(u64::from(holes))?;
    if what != (Allocate::Reserve { keep_size }) {
        clear(core, &inode, &mut state, offset.min(end), end, reserves)?;
    }
    if reserves {
        reserved.take(u64::from(holes));
        fill_holes(core, &inode, &mut state, first, last)?;
    }
    drop(reserved);
    note_write(core, &inode, &mut state, cred)?;
    if !keep_size && end > state.size {
        let mut handle = core.handle(4)?;
        (state.size, state.size_on_disk) = (end, end);
        handle.write_inode(&inode, &mut state, true)?;
        handle.finish();
    }
    Ok(())
}

/// Locks a file for a change of its size to `size`, with no page dirty: only holes are without blocks then.
fn lock_written<'a, D: BlockPort>(
    core: &Core<D>,
    inode: &'a Arc<Inode<D>>,
    size: u64,
) -> Result<Guard<'a, Core<D>>> {
    loop {
        write_back(core, inode)?;
        let state = lock_for_size(core, inode, size)?;
        if state.file()?.is_clean() {
            return Ok(state);
        }
    }
}

fn holes_in<D: BlockPort>(state: &State<D>, first: u32, end: u32) -> u32 {
    let (mut at, mut holes) = (first, 0);
    while at < end {
        let blocks = match state.extents.map(at) {
            Mapped::Hole { blocks } => {
                holes += blocks.min(end - at);
                blocks
            }
            Mapped::At { blocks, .. } => blocks,
        };
        at = at.saturating_add(blocks);
    }
    holes
}

/// Makes `offset .. end` read as zeros: parts of pages in the cache, whole ones by losing their blocks or, if
/// they `keep` them, by having them marked.
fn clear<D: BlockPort>(
    core: &Core<D>,
    inode: &Arc<Inode<D>>,
    state: &mut State<D>,
    offset: u64,
    end: u64,
    keep: bool,
) -> Result<()> {
    let (first, last) = (offset.div_ceil(BLOCK as u64) as u32, (end / BLOCK as u64) as u32);
    let (head, tail) = ((offset % BLOCK as u64) as usize, (end % BLOCK as u64) as usize);
    if first > last {
        // The whole range lies within one page.
        return zero_in_page(core, inode, state, last, head..tail);
    }
    if head > 0 {
        zero_in_page(core, inode, state, first - 1, head..BLOCK)?;
    }
    if tail > 0 {
        zero_in_page(core, inode, state, last, 0..tail)?;
    }
    if let Part { body: Body::File(file), extents, .. } = &mut state.part {
        file.forget(core, extents, first, last);
        file.version += 1;
    }
    // Front to back, some extents at a time.
    let mut at = first;
    while at < last {
        let runs: Vec<Run> = state
            .extents
            .iter()
            .filter(|run| run.file_block + run.len > at && run.file_block < last)
            .collect();
        let Some(final_run) = runs.get(..runs.len().min(STEP_EXTENTS)).and_then(<[Run]>::last) else { break };
        let to = (final_run.file_block + final_run.len).min(last);
        let mut handle = core.handle(step_credits(core))?;
        if keep {
            state.extents.mark(at, to, true);
        } else {
            free_range(&mut handle, state, at, to)?;
        }
        handle.write_inode(inode, state, true)?;
        handle.finish();
        at = to;
    }
    Ok(())
}

/// Gives every hole of `first .. end` blocks that are marked unwritten; they have been reserved.
fn fill_holes<D: BlockPort>(
    core: &Core<D>,
    inode: &Inode<D>,
    state: &mut State<D>,
    first: u32,
    end: u32,
) -> Result<()> {
    let mut at = first;
    while at < end {
        let mut handle = core.handle(step_credits(core))?;
        let mut extents = 0;
        while at < end && extents < STEP_EXTENTS {
            match state.extents.map(at) {
                Mapped::At { blocks, .. } => at = at.saturating_add(blocks),
                Mapped::Hole { blocks } => {
                    let goal = state.extents.goal(at).unwrap_or_else(|| core.groups.goal(number(inode)));
                    let want = blocks.min(end - at).min(EXTENT_BLOCKS_MAX);
                    let (start, len) = core.groups.allocate(&mut handle, goal, want)?;
                    state.extents.insert(Run { file_block: at, start, len, unwritten: true });
                    state.blocks += len;
                    at += len;
                    extents += 1;
                }
            }
        }
        if extents > 0 {
            handle.write_inode(inode, state, true)?;
        }
        handle.finish();
    }
    Ok(())
}
