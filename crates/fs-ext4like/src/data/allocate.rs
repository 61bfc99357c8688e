//! Ranges of a file: reserving their space, freeing it, making them read as zeros.
//!
//! Reserved space is an extent marked unwritten: it has blocks, and reads as zeros until a write-back puts
//! data there and clears the mark.

use std::sync::Arc;

use amphi_device::BlockPort;
use amphi_names::Guard;
use amphi_page_cache::{Mapped, Mapping, Pieces};
use amphi_vfs::{Allocate, Cred, Error, Ino, Result};

use crate::core::Core;
use crate::data::file::{note_write, zero_in_page};
use crate::data::free::{free_range, step_credits};
use crate::data::truncate::lock_for_size;
use crate::data::writeback::write_back;
use crate::format::{BLOCK, EXTENT_BLOCKS_MAX, FILE_BYTES_MAX};
use crate::index::extent::Run;
use crate::index::inode::number;
use crate::index::part::{Body, Inode, Part, State};

/// Extents allocated or freed in one handle.
const STEP_EXTENTS: usize = 16;

/// Reserves, frees or zeroes a range; see [`amphi_vfs::FileSystem::allocate`]. The inode takes note of it as
/// of a write by `cred`, if there is one.
///
/// # Errors
/// As there.
pub fn allocate<D: BlockPort>(
    core: &Core<D>,
    ino: Ino,
    offset: u64,
    length: u64,
    what: Allocate,
    cred: Option<&Cred>,
) -> Result<()> {
    let inode = core.inode(ino)?;
    core.writable()?;
    inode.state.read().body.file()?;
    if length == 0 {
        return Err(Error::Invalid("an empty range"));
    }
    let end = offset.saturating_add(length);
    let (reserves, keep_size) = (what.reserves(), what.keeps_size());
    if reserves && end > FILE_BYTES_MAX {
        return Err(Error::TooLarge);
    }
    let end = end.min(FILE_BYTES_MAX);
    let mut state = lock_written(core, &inode, if keep_size { 0 } else { end })?;
    let (first, last) = ((offset.min(end) / BLOCK as u64) as u32, end.div_ceil(BLOCK as u64) as u32);
    let holes = if reserves { state.extents.holes(u64::from(first), u64::from(last)) } else { 0 };
    let mut reserved = core.reserve(holes)?;
    if what.clears() {
        clear(core, &inode, &mut state, offset.min(end), end, reserves)?;
    }
    if reserves {
        reserved.take(holes);
        fill_holes(core, &inode, &mut state, first, last)?;
    }
    drop(reserved);
    if let Some(cred) = cred {
        note_write(core, &inode, &mut state, cred)?;
    }
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
    inode: &'a Arc<Inode>,
    size: u64,
) -> Result<Guard<'a, Part>> {
    loop {
        write_back(core, inode)?;
        let state = lock_for_size(core, inode, size)?;
        if state.body.file()?.is_clean() {
            return Ok(state);
        }
    }
}

/// Makes `offset .. end` read as zeros: parts of pages in the cache, whole ones by losing their blocks or, if
/// they `keep` them, by having them marked.
fn clear<D: BlockPort>(
    core: &Core<D>,
    inode: &Arc<Inode>,
    state: &mut State,
    offset: u64,
    end: u64,
    keep: bool,
) -> Result<()> {
    let Pieces { parts, whole } = Pieces::of(offset, end);
    for (index, bytes) in parts.into_iter().flatten() {
        zero_in_page(core, inode, state, index, bytes)?;
    }
    let (first, last) = (whole.start as u32, whole.end as u32);
    if let Part { body: Body::File(file), extents, .. } = &mut state.part {
        core.groups.unreserve(file.forget(&core.pages, extents, whole));
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
    inode: &Inode,
    state: &mut State,
    first: u32,
    end: u32,
) -> Result<()> {
    let mut at = first;
    while at < end {
        let mut handle = core.handle(step_credits(core))?;
        let mut extents = 0;
        while at < end && extents < STEP_EXTENTS {
            match state.extents.map(u64::from(at)) {
                Mapped::At { pages, .. } | Mapped::Unwritten { pages, .. } => at += pages as u32,
                Mapped::Hole { pages } => {
                    let goal = state.extents.goal(at).unwrap_or_else(|| core.groups.goal(number(inode)));
                    let want = pages.min(u64::from((end - at).min(EXTENT_BLOCKS_MAX))) as u32;
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
