//! Freeing blocks: of a range, or in steps of one handle each, last blocks first.

use amphi_device::BlockPort;
use amphi_vfs::Result;

use crate::core::Core;
use crate::format::BLOCK_EXTENTS;
use crate::index::inode::number;
use crate::index::part::{Body, Inode, Part, State};
use crate::index::xattr;
use crate::journal::handle::Handle;

/// Most extents freed in one handle.
const STEP_EXTENTS: usize = 32;

/// Blocks that a step may change: bitmaps and descriptors of the groups, extent blocks, inode, superblock,
/// neighbours in the list of orphans.
pub fn step_credits<D: BlockPort>(core: &Core<D>) -> usize {
    let groups = core.layout.groups as usize;
    10 + groups.min(2 * STEP_EXTENTS)
        + groups.div_ceil(64).min(2 * STEP_EXTENTS)
        + STEP_EXTENTS / BLOCK_EXTENTS
}

/// First block of the file that the next step frees, of those at or behind `from`, and whether that is all.
fn step_start(part: &Part, from: u32) -> (u32, bool) {
    let behind: Vec<u32> = part
        .extents
        .iter()
        .filter(|run| run.file_block + run.len > from)
        .map(|run| run.file_block.max(from))
        .collect();
    match behind.len().checked_sub(STEP_EXTENTS) {
        Some(at) if at > 0 => (behind[at], false),
        _ => (from, true),
    }
}

/// Frees what a handle may of the blocks at or behind `from`; false if there is more.
pub fn free_step<D: BlockPort>(handle: &mut Handle<'_, D>, part: &mut Part, from: u32) -> Result<bool> {
    let (start, all) = step_start(part, from);
    free_range(handle, part, start, u32::MAX)?;
    Ok(all)
}

/// Frees the blocks `from .. to` of the file.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn free_range<D: BlockPort>(
    handle: &mut Handle<'_, D>,
    part: &mut Part,
    from: u32,
    to: u32,
) -> Result<()> {
    // The journal may hold copies of directories, long symlinks and, if they are journaled, file data.
    let revoke = !matches!(part.body, Body::File(_)) || handle.base.journals_data();
    for run in part.extents.remove(from, to) {
        let freed = handle.base.groups.free_blocks(handle, run.start, run.len, revoke);
        handle.judge(freed)?;
        // A damaged inode may say that it has fewer.
        part.blocks = part.blocks.saturating_sub(run.len);
    }
    Ok(())
}

/// Frees what a handle may of an inode without names and references, which is in the list of orphans; with
/// the last of it its number and its place in the list. False if there is more. Nothing is in flight.
///
/// # Errors
/// [`Error::Io`], [`Error::Corrupt`].
pub fn delete_step<D: BlockPort>(
    handle: &mut Handle<'_, D>,
    inode: &Inode,
    state: &mut State,
) -> Result<bool> {
    let core = handle.base;
    if let Part { body: Body::File(file), extents, .. } = &mut state.part {
        core.groups.unreserve(file.forget(&core.pages, extents, 0..u64::MAX));
        core.dirty.remove(inode.ino, &inode.beside.dirty);
    }
    if !free_step(handle, state, 0)? {
        return Ok(false);
    }
    for node in std::mem::take(&mut state.extents).node_blocks() {
        core.groups.free_blocks(handle, node, 1, true)?;
    }
    let Part { xattrs, blocks, .. } = &mut state.part;
    xattr::free(handle, xattrs, blocks)?;
    core.orphans.remove(handle, number(inode))?;
    core.groups.free_inode(handle, number(inode), inode.is_dir())?;
    Ok(true)
}
