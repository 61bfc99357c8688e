//! The synergistic dual-path transactional write (RO-4): any write, of any size and offset, counts as a whole
//! or not at all.
//!
//! 1. A record of the journal with what changes in the file's index, and the sub-writes.
//! 2. Commands for both paths.
//! 3. Sub-writes on the memory path, by the caller's task, while
//! 4. data blocks are on their way.
//! 5. A mark in the record for each sub-write that is done.
//! 6. The tail, with the inode: from then on the write counts. What host memory knows follows.
//!
//! The inode is locked at both ends only. In between the caller holds the range of data blocks.

use amphi_device::{BlockPort, MemoryArea};
use amphi_names::{note_write, shed_capability};
use amphi_vfs::{Cred, Error, Result, WriteMode};

use crate::core::Core;
use crate::execute::execute;
use crate::format::INLINE_SLOTS;
use crate::inode::note_stored;
use crate::part::{AtOnce, Inode, State};
use crate::plan::Plan;
use crate::planted::{self, Bug};
use crate::split::{Part, split};
use crate::tx::Tx;
use crate::{logs, map, writeback};

/// Writes all of `data`. `None`: nothing, since some of what it is written over is buffered; the caller
/// [flushes](crate::lazy::flush) it first.
///
/// # Errors
/// As [`amphi_vfs::FileSystem::write`].
pub fn write<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    inode: &Inode,
    offset: u64,
    data: &[u8],
    mode: WriteMode,
    cred: &Cred,
) -> Result<Option<usize>> {
    amphi_names::regular(inode.file_type)?;
    core.names.health.writable()?;
    if data.is_empty() {
        return Ok(Some(0));
    }
    if core.logs_are_exhausted() {
        writeback::help(core)?;
    }
    let Some((held, offset)) = hold(core, inode, offset, data.len() as u64, mode.append)? else {
        return Ok(None);
    };
    write_held(core, inode, offset, data, Some(cred))?;
    drop(held);
    if core.wants_background() {
        core.background.call();
    }
    Ok(Some(data.len()))
}

/// Takes the data blocks that a write touches, and all behind if it may move the file's end. Returns also
/// where it begins; `None`: some of it is buffered.
fn hold<'a, D: BlockPort + MemoryArea>(
    core: &Core<D>,
    inode: &'a Inode,
    offset: u64,
    len: u64,
    append: bool,
) -> Result<Option<(AtOnce<'a>, u64)>> {
    loop {
        let state = inode.state.read();
        if state.gone {
            return Err(Error::Stale(inode.ino));
        }
        let offset = if append { state.size } else { offset };
        let end = offset.checked_add(len).filter(|end| *end <= core.layout.file_bytes_max());
        let end = end.ok_or(Error::TooLarge)?;
        let block = core.block_bytes();
        let last = if end > state.size { u64::MAX } else { end.div_ceil(block) };
        let range = offset / block..last;
        if state.part.is_buffered(offset..end) {
            return Ok(None);
        }
        if let Some(held) = inode.beside.try_at_once(range.clone()) {
            return Ok(Some((held, offset)));
        }
        drop(state);
        inode.beside.ranges.wait_for(&range, true);
    }
}

/// Writes back what was buffered, where the caller holds the range: the inode has taken note of it already.
///
/// # Errors
/// As [`write()`].
pub fn write_back<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    inode: &Inode,
    offset: u64,
    data: &[u8],
) -> Result<()> {
    write_held(core, inode, offset, data, None)
}

/// Writes `data` where the caller holds the range. The inode takes note of a write by `cred`, if there is
/// one.
///
/// # Errors
/// As [`write()`].
pub fn write_held<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    inode: &Inode,
    offset: u64,
    data: &[u8],
    cred: Option<&Cred>,
) -> Result<()> {
    let end = offset + data.len() as u64;
    let block = core.block_bytes();
    let mut tx = Tx::new(core);
    // It is large, and so filled in place.
    let mut plan = Plan::default();
    let inline = {
        let mut state = inode.state.write();
        if cred.is_some() {
            shed_capability(core, inode, &mut state)?;
        }
        logs::open(core, inode, &mut state)?;
        ensure_slots(core, inode, &mut state, offset / block, end.div_ceil(block))?;
        let mut from = 0;
        let threshold = core.options.threshold.max(block);
        let threshold = if planted::has(Bug::SplitForgotten) { 1 << 62 } else { threshold };
        for part in split(offset..end, block, threshold) {
            plan.add(&mut tx, inode, &state, &part, from)?;
            let (bytes, path) = match part {
                Part::Blocks(blocks) => ((blocks.end - blocks.start) * block, &core.counters.split_to_blocks),
                Part::Bytes(_, bytes) => (bytes.end - bytes.start, &core.counters.split_to_memory),
            };
            path.add(bytes);
            from += bytes as usize;
        }
        plan.store_slots(&mut tx, &state)?
    };
    execute(core, inode, &mut tx, &plan, data, inline, |state| {
        if let Some(cred) = cred {
            note_write(core, state, cred);
        }
        if !planted::has(Bug::SizeForgotten) {
            state.size = state.size.max(end);
            note_stored(state, end);
        }
    })
}

/// Sees to it that the slots of `first .. end` have pages, by transactions of their own: they are as good
/// without the write.
///
/// # Errors
/// [`Error::NoSpace`]; [`Error::Corrupt`], [`Error::Io`].
pub fn ensure_slots<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    inode: &Inode,
    state: &mut State,
    first: u64,
    end: u64,
) -> Result<()> {
    let mut index = first.max(INLINE_SLOTS);
    while index < end {
        if core.slot_address(&state.part.mapping, index)?.is_none() {
            let mut tx = Tx::new(core);
            tx.reserve_pages(map::GROWTH_PAGES_MAX)?;
            let mut mapping = state.part.mapping;
            map::grow(&mut tx, &mut mapping, index)?;
            state.part.mapping = mapping;
            tx.put_inode(inode, state, false);
            tx.commit()?;
        }
        // The next page's first slot.
        let page = crate::format::PAGE_SLOTS;
        index = ((index - INLINE_SLOTS) / page + 1) * page + INLINE_SLOTS;
    }
    Ok(())
}
