//! Giving space back: a shorter file, a deleted one, holes. What is more than one transaction takes is freed
//! in steps, the file among the orphans meanwhile, so that the next mount goes on after a crash.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use amphi_device::{BlockPort, MemoryArea};
use amphi_names::{Change, Changed, Need, Store};
use amphi_vfs::{Error, FileType, Result};
use smallvec::SmallVec;
use zerocopy::IntoBytes;

use crate::core::Core;
use crate::format::{INLINE_SLOTS, Map, Slot};
use crate::logs;
use crate::part::{Inode, State};
use crate::planted::{self, Bug};
use crate::tree::Leaf;
use crate::tx::Tx;

/// Slots that one transaction empties.
pub const STEP_SLOTS: usize = 32;

/// Empties up to [`STEP_SLOTS`] slots of an inode from `first` on. Whether those were all.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn free_some<D: BlockPort + MemoryArea>(
    tx: &mut Tx<'_, D>,
    inode: &Inode,
    state: &mut State,
    first: u64,
) -> Result<bool> {
    free_range(tx, inode, state, first..u64::MAX)
}

/// Empties up to [`STEP_SLOTS`] slots of `range`. Whether those were all.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn free_range<D: BlockPort + MemoryArea>(
    tx: &mut Tx<'_, D>,
    inode: &Inode,
    state: &mut State,
    range: Range<u64>,
) -> Result<bool> {
    let core = tx.core;
    if !matches!(state.file_type, FileType::Regular | FileType::Directory) {
        return Ok(true);
    }
    let mut slots: SmallVec<[(u64, Slot); STEP_SLOTS]> = SmallVec::new();
    let mut all = true;
    core.visit_slots(&state.part.mapping, range, |index, slot| {
        all = slots.len() < STEP_SLOTS;
        if !all {
            return ControlFlow::Break(());
        }
        slots.push((index, slot));
        ControlFlow::Continue(())
    })?;
    if state.file_type == FileType::Directory {
        for (_, slot) in &slots {
            tx.free(Map::Pages, slot.block().unwrap_or_default().into(), 1);
        }
        state.part.blocks = state.part.blocks.saturating_sub(slots.len() as u64);
    } else {
        free_blocks(tx, inode, state, &slots)?;
    }
    for (index, _) in slots {
        if index < INLINE_SLOTS {
            state.part.mapping.slots[index as usize] = Slot::default();
        } else if let Some(at) = core.slot_address(&state.part.mapping, index)? {
            tx.ops.zeros(at, size_of::<Slot>() as u64);
        }
    }
    Ok(all)
}

fn free_blocks<D: BlockPort + MemoryArea>(
    tx: &mut Tx<'_, D>,
    inode: &Inode,
    state: &mut State,
    slots: &[(u64, Slot)],
) -> Result<()> {
    let core = tx.core;
    let (mut blocks, mut pages) = (0, 0);
    let tree = logs::open(core, inode, state)?;
    let mut had_leaf = false;
    for (index, slot) in slots {
        let leaf = tree.get(*index);
        had_leaf |= leaf.is_some();
        let (block, logs) = tx.free_slot(*slot, leaf);
        (blocks, pages) = (blocks + block, pages + logs);
        core.victims.note(inode.ino, *index, 0);
    }
    if had_leaf {
        let gone = |block: u64| slots.binary_search_by_key(&block, |(index, _)| *index).is_ok();
        tree.retain(|block, _| !gone(block));
    }
    state.part.blocks = state.part.blocks.saturating_sub(blocks);
    state.part.logs = state.part.logs.saturating_sub(pages);
    Ok(())
}

/// Hides what a data block has from byte `from` on.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn cut_block<D: BlockPort + MemoryArea>(
    tx: &mut Tx<'_, D>,
    inode: &Inode,
    state: &mut State,
    block: u64,
    from: u64,
) -> Result<()> {
    let core = tx.core;
    let mut slot = core.slot(&state.part.mapping, block)?;
    if u64::from(slot.valid.get()) > from && !planted::has(Bug::ValidNotCut) {
        slot.valid = (from as u32).into();
        if block < INLINE_SLOTS {
            state.part.mapping.slots[block as usize] = slot;
        } else if let Some(at) = core.slot_address(&state.part.mapping, block)? {
            tx.ops.bytes(at, slot.as_bytes());
        }
    }
    let Some(leaf) = logs::open(core, inode, state)?.get_mut(block) else { return Ok(()) };
    let before = leaf.logs.len();
    let mut cut = false;
    leaf.logs.retain(|log| {
        let keep = log.range().start < from;
        if !keep {
            tx.free(Map::Logs, log.page.into(), 1);
        } else if log.range().end > from {
            log.size = (from - log.range().start) as u32;
            cut = true;
        }
        keep
    });
    let leaf: Leaf = leaf.clone();
    if cut || leaf.logs.len() < before {
        logs::store_entries(&mut tx.ops, core, &leaf, before);
        core.victims.note(inode.ino, block, leaf.logs.len());
        state.part.logs = state.part.logs.saturating_sub((before - leaf.logs.len()) as u64);
    }
    Ok(())
}

/// See [`Store::resize`].
///
/// # Errors
/// As there.
pub fn resize<'a, D: BlockPort + MemoryArea>(
    core: &'a Core<D>,
    inode: &Arc<Inode>,
    state: &mut State,
    size: u64,
    apply: impl FnOnce(&mut Tx<'a, D>, &mut State) -> Result<()>,
) -> Result<()> {
    if size > core.layout.file_bytes_max() {
        return Err(Error::TooLarge);
    }
    let mut tx = core.begin(&Need::NOTHING)?;
    apply(&mut tx, state)?;
    let shorter = size < state.size;
    state.size = size;
    let block = core.block_bytes();
    let mut all = true;
    if shorter {
        if !size.is_multiple_of(block) {
            cut_block(&mut tx, inode, state, size / block, size % block)?;
        }
        all = free_some(&mut tx, inode, state, size.div_ceil(block))?;
        if !all {
            tx.ops.set(Map::Orphans, inode.ino.0, 1);
        }
    }
    tx.write_inode(inode, state, Changed::Contents)?;
    tx.commit()?;
    if all { Ok(()) } else { finish_cut(core, inode, state) }
}

/// Frees what lies behind the end of a file that was cut, and takes the file out of the orphans.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn finish_cut<D: BlockPort + MemoryArea>(core: &Core<D>, inode: &Inode, state: &mut State) -> Result<()> {
    let first = state.size.div_ceil(core.block_bytes());
    loop {
        let mut tx = core.begin(&Need::NOTHING)?;
        let all = free_some(&mut tx, inode, state, first)?;
        if all && !state.orphan {
            tx.ops.clear(Map::Orphans, inode.ino.0, 1);
        }
        tx.write_inode(inode, state, Changed::Contents)?;
        tx.commit()?;
        if all {
            return Ok(());
        }
    }
}
