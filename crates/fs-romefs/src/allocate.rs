//! `fallocate`: space held for writes to come, holes, zeros.
//!
//! A data block that is held is one of which nothing is visible. Whole blocks of a range are dealt with as
//! they are, in steps; parts of blocks at its ends are cut or written with zeros. The caller holds the range
//! all the while.

use std::ops::Range;

use amphi_device::{BlockPort, MemoryArea};
use amphi_names::{Change, Changed, Need, Store, note_write, shed_capability};
use amphi_vfs::{Allocate, Cred, Error, Result};
use zerocopy::IntoBytes;

use crate::core::Core;
use crate::format::{INLINE_SLOTS, Map, Slot};
use crate::inode::note_stored;
use crate::part::{AtOnce, Inode, State};
use crate::truncate::{STEP_SLOTS, cut_block, free_range};
use crate::tx::Tx;
use crate::write::{ensure_slots, write_held};
use crate::{lazy, logs, read};

/// See [`amphi_vfs::FileSystem::allocate`].
///
/// # Errors
/// As there.
pub fn allocate<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    inode: &Inode,
    offset: u64,
    length: u64,
    what: Allocate,
    cred: &Cred,
) -> Result<()> {
    amphi_names::regular(inode.file_type)?;
    core.names.health.writable()?;
    if length == 0 {
        return Err(Error::Invalid("an empty range"));
    }
    let end = offset.saturating_add(length);
    if what != Allocate::PunchHole && end > core.layout.file_bytes_max() {
        return Err(Error::TooLarge);
    }
    let end = end.min(core.layout.file_bytes_max()).max(offset);
    let _held = hold_all(core, inode, offset..end)?;
    {
        let mut state = inode.state.write();
        shed_capability(core, inode, &mut state)?;
        logs::open(core, inode, &mut state)?;
    }
    match what {
        Allocate::Reserve { .. } => reserve(core, inode, offset..end)?,
        Allocate::PunchHole => clear(core, inode, offset..end, cred)?,
        Allocate::Zero { .. } => {
            clear(core, inode, offset..end, cred)?;
            reserve(core, inode, offset..end)?;
        }
    }
    let mut state = inode.state.write();
    if let Allocate::Reserve { keep_size: false } | Allocate::Zero { keep_size: false } = what {
        state.size = state.size.max(end);
        note_stored(&mut state, end);
    }
    note_write(core, &mut state, cred);
    let mut tx = core.begin(&Need::NOTHING)?;
    tx.write_inode(inode, &mut state, Changed::Attributes)?;
    tx.commit()
}

/// Holds all of a file, in which nothing of `bytes` is buffered.
fn hold_all<'a, D: BlockPort + MemoryArea>(
    core: &Core<D>,
    inode: &'a Inode,
    bytes: Range<u64>,
) -> Result<AtOnce<'a>> {
    loop {
        let state = inode.state.read();
        if state.gone {
            return Err(Error::Stale(inode.ino));
        }
        let is_buffered = state.part.is_buffered(bytes.clone());
        if !is_buffered && let Some(held) = inode.beside.try_at_once(0..u64::MAX) {
            return Ok(held);
        }
        drop(state);
        if is_buffered {
            lazy::flush(core, inode)?;
        } else {
            inode.beside.ranges.wait_for(&(0..u64::MAX), true);
        }
    }
}

/// Has every data block of a range one of the device's.
fn reserve<D: BlockPort + MemoryArea>(core: &Core<D>, inode: &Inode, range: Range<u64>) -> Result<()> {
    let block = core.block_bytes();
    let mut next = range.start / block;
    let end = range.end.div_ceil(block);
    // Said at once, not after most of it is done.
    let mut missing = 0;
    for index in next..end {
        let state = inode.state.read();
        missing += u64::from(core.slot(&state.part.mapping, index)?.block().is_none());
        if missing > core.pool(Map::Blocks).free() {
            return Err(Error::NoSpace);
        }
    }
    while next < end {
        let mut state = inode.state.write();
        ensure_slots(core, inode, &mut state, next, end.min(next + STEP_SLOTS as u64))?;
        let mut tx = core.begin(&Need::NOTHING)?;
        for index in next..end.min(next + STEP_SLOTS as u64) {
            let slot = core.slot(&state.part.mapping, index)?;
            if slot.block().is_none() {
                let taken = tx.take(Map::Blocks, 1)?.first as u32;
                set_slot(&mut tx, &mut state, index, Slot { block: (taken + 1).into(), ..slot })?;
                state.part.blocks += 1;
            }
        }
        tx.write_inode(inode, &mut state, Changed::Contents)?;
        tx.commit()?;
        next += STEP_SLOTS as u64;
    }
    Ok(())
}

fn set_slot<D: BlockPort + MemoryArea>(
    tx: &mut Tx<'_, D>,
    state: &mut State,
    index: u64,
    slot: Slot,
) -> Result<()> {
    if index < INLINE_SLOTS {
        state.part.mapping.slots[index as usize] = slot;
    } else if let Some(at) = tx.core.slot_address(&state.part.mapping, index)? {
        tx.ops.bytes(at, slot.as_bytes());
    }
    Ok(())
}

/// Makes a range read as zeros, and frees the whole blocks of it.
fn clear<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    inode: &Inode,
    range: Range<u64>,
    cred: &Cred,
) -> Result<()> {
    let block = core.block_bytes();
    let whole = range.start.div_ceil(block)..range.end / block;
    if whole.start > whole.end {
        return clear_part(core, inode, range, cred);
    }
    clear_part(core, inode, range.start..whole.start * block, cred)?;
    clear_part(core, inode, whole.end * block..range.end, cred)?;
    loop {
        let mut state = inode.state.write();
        let mut tx = core.begin(&Need::NOTHING)?;
        let all = free_range(&mut tx, inode, &mut state, whole.clone())?;
        tx.write_inode(inode, &mut state, Changed::Contents)?;
        tx.commit()?;
        if all {
            return Ok(());
        }
    }
}

/// Makes a part of one data block read as zeros.
fn clear_part<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    inode: &Inode,
    range: Range<u64>,
    cred: &Cred,
) -> Result<()> {
    if range.is_empty() {
        return Ok(());
    }
    let number = range.start / core.block_bytes();
    let start = number * core.block_bytes();
    let within = range.start - start..range.end - start;
    {
        let mut state = inode.state.write();
        let next = read::first_in_block(core, &state, number, within.start, true)?;
        if next.is_none_or(|next| next >= within.end) {
            return Ok(());
        }
        if read::first_in_block(core, &state, number, within.end, true)?.is_none() {
            let mut tx = core.begin(&Need::NOTHING)?;
            cut_block(&mut tx, inode, &mut state, number, within.start)?;
            tx.write_inode(inode, &mut state, Changed::Contents)?;
            return tx.commit();
        }
    }
    // There are data behind it. They are within the file, or were there before.
    let size = inode.state.read().size;
    let zeros = vec![0; (range.end.min(size.max(range.start)) - range.start) as usize];
    if zeros.is_empty() { Ok(()) } else { write_held(core, inode, range.start, &zeros, Some(cred)) }
}

/// Where the next data, or the next hole, of a file is.
///
/// # Errors
/// As [`amphi_vfs::FileSystem::seek`].
pub fn seek<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    inode: &Inode,
    offset: u64,
    data: bool,
) -> Result<u64> {
    amphi_names::regular(inode.file_type)?;
    logs::open(core, inode, &mut inode.state.write())?;
    let state = inode.state.read();
    if offset >= state.size {
        return Err(Error::NoData);
    }
    let block = core.block_bytes();
    let mut from = offset % block;
    let mut number = offset / block;
    while number * block < state.size {
        if let Some(at) = read::first_in_block(core, &state, number, from, data)? {
            let found = number * block + at;
            if found >= state.size {
                break;
            }
            return Ok(found);
        }
        from = 0;
        number = if data { next_slot(core, &state, number + 1)? } else { number + 1 };
    }
    if data { Err(Error::NoData) } else { Ok(state.size) }
}

/// The next slot that holds something.
fn next_slot<D: BlockPort + MemoryArea>(core: &Core<D>, state: &State, from: u64) -> Result<u64> {
    let mut found = u64::MAX / core.block_bytes();
    core.visit_slots(&state.part.mapping, from..u64::MAX, |index, _| {
        found = index;
        std::ops::ControlFlow::Break(())
    })?;
    Ok(found)
}
