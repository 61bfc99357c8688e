//! Bringing a file's pages to the device: the asynchronous stack of `fsync` (AU-9).
//!
//! Data and the nodes that name them are submitted together. Until both have arrived, nodes carry a write
//! version of the processor that is not over yet, so recovery does not believe them. The inode follows
//! (ordered mode).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use amphi_device::{BlockPort, MemoryArea, Structure};
use amphi_lsm::Batch;
use amphi_segments::{Domain, Node, Parts, Writes, as_writes};
use amphi_vfs::{Error, Result};

use crate::collect;
use crate::core::Core;
use crate::format::{ADDRESSES, NodeHead};
use crate::inode;
use crate::nodes::slot_of;
use crate::part::{Inode, State};
use crate::planted::{self, Bug};

/// What is done to a file's nodes along with its pages.
#[derive(Clone, Debug, Default)]
pub struct Edit {
    /// Pages that become holes.
    pub holes: Range<u64>,
    /// Pages for which space is held.
    pub held: Range<u64>,
}

/// Writes a file's dirty pages back with their nodes, then its inode. The caller has it locked.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`]; the file system is read-only then. [`Error::NoSpace`] never, but for an
/// edit.
pub fn write_back<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    inode: &Arc<Inode>,
    state: &mut State,
    edit: &Edit,
) -> Result<()> {
    core.names.health.writable()?;
    let done = write_back_all(core, inode, state, edit);
    judge(core, done)
}

/// Turns the file system read-only if this is a failure: before the gate is free, so that no checkpoint comes
/// behind it.
fn judge<D: BlockPort + MemoryArea, T>(core: &Core<D>, done: Result<T>) -> Result<T> {
    match &done {
        Err(Error::NoSpace) | Ok(_) => {}
        Err(error) => core.names.health.fail(error),
    }
    done
}

fn write_back_all<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    inode: &Arc<Inode>,
    state: &mut State,
    edit: &Edit,
) -> Result<()> {
    let dirty = state.part.file.pages.first_dirty(usize::MAX);
    let mut touched: BTreeSet<u32> = dirty.iter().map(|page| slot_of(*page).0).collect();
    touched.extend(indices(&edit.held));
    touched.extend(state.part.nodes.range(indices(&edit.holes)).map(|(index, _)| *index));
    if touched.is_empty() && !state.part.file.changed && state.part.file.stored_size == state.size {
        return Ok(());
    }
    let domain = core.domain(inode.ino);
    let mut gate = domain.gate.read();
    if !touched.is_empty() {
        loop {
            if planted::has(Bug::InodeBeforeData) {
                put_inode(core, inode, state)?;
            }
            if judge(core, submit(core, domain, inode, state, (edit, &touched, &dirty)))? {
                break;
            }
            drop(gate);
            collect::make_free(core)?;
            gate = domain.gate.read();
        }
    }
    judge(core, put_inode(core, inode, state))?;
    drop(gate);
    settle_pages(core, state);
    core.cache.note_clean(inode);
    Ok(())
}

/// The nodes of a range of pages.
fn indices(pages: &Range<u64>) -> Range<u32> {
    if pages.is_empty() { 0..0 } else { slot_of(pages.start).0..slot_of(pages.end - 1).0 + 1 }
}

fn put_inode<D: BlockPort + MemoryArea>(core: &Core<D>, inode: &Inode, state: &mut State) -> Result<()> {
    state.part.file.stored_size = state.size;
    state.atime_dirty = false;
    let mut batch = Batch::new();
    inode::put(&mut batch, inode, state)?;
    core.meta.write(&batch)
}

/// Pages are as the device has them, and promises are kept.
fn settle_pages<D: BlockPort + MemoryArea>(core: &Core<D>, state: &mut State) {
    core.cache.settle(&mut state.part.file);
    state.part.promised = 0;
    core.space.give_back(std::mem::take(&mut state.part.promised_nodes).len() as u64);
}

/// Gives pages and nodes their blocks, and writes them. False if there are too few free segments; nothing has
/// changed then.
fn submit<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    domain: &Domain,
    inode: &Arc<Inode>,
    state: &mut State,
    (edit, touched, dirty): (&Edit, &BTreeSet<u32>, &[u64]),
) -> Result<bool> {
    let there: Vec<_> = touched.iter().filter_map(|index| state.part.nodes.get(index).copied()).collect();
    let processor = amphi_rt::cpu::current() % core.write_versions.len();
    let mut version = core.write_versions[processor].lock();
    // Nodes of one that has failed carry this version: it must not end.
    core.names.health.sound()?;
    let mut parts = core.ground.with_nodes(domain, &there)?;
    let counts = [dirty.len(), touched.len()];
    if core.numbers_free(&parts) < touched.len() - there.len() {
        return Ok(false);
    }
    let Some([data, nodes]) = core.take_blocks(domain, &mut parts, counts, false)? else { return Ok(false) };
    let numbers = number_nodes(core, &mut parts, inode, state, touched)?;
    place_pages(core, &mut parts, state, &numbers, dirty.iter().zip(&data))?;
    edit_nodes(core, &mut parts, state, &numbers, edit)?;
    let stamp = |head: &mut NodeHead| {
        head.fsync = 1.into();
        (head.processor, head.write_version) = ((processor as u32).into(), (*version).into());
    };
    let sealed = core.ground.seal(domain, &mut parts, numbers.values(), &nodes, stamp)?;
    core.counters.node_blocks.add(sealed.len() as u64);
    drop(parts);
    let pages: Writes<'_> = data
        .iter()
        .zip(dirty)
        .filter_map(|(block, page)| Some((*block, state.part.file.pages.get(*page)?.data.as_slice())))
        .collect();
    core.counters.data_blocks.add(pages.len() as u64);
    let nodes = as_writes(&sealed);
    judge(core, write_together(core, &pages, &nodes))?;
    domain.parts.lock().arrived(&sealed);
    core.raise_write_version(processor, &mut version)?;
    Ok(true)
}

/// Writes data and the nodes that name them, durably.
fn write_together<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    pages: &Writes<'_>,
    nodes: &Writes<'_>,
) -> Result<()> {
    if core.options.nodes_after_data || planted::has(Bug::NodesAfterData) {
        core.ground.write_blocks(&[(pages, Structure::Data)])?;
        core.ground.settle()?;
        core.ground.write_blocks(&[(nodes, Structure::Pointer)])?;
    } else {
        core.ground.write_blocks(&[(pages, Structure::Data), (nodes, Structure::Pointer)])?;
    }
    core.ground.settle()
}

/// The numbers of the nodes that are touched, new ones among them.
fn number_nodes<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    parts: &mut Parts,
    inode: &Inode,
    state: &mut State,
    touched: &BTreeSet<u32>,
) -> Result<BTreeMap<u32, u32>> {
    let mut numbers = BTreeMap::new();
    for index in touched {
        let nid = match state.part.nodes.get(index) {
            Some(nid) => *nid,
            None => {
                let nid = core.take_nid(parts)?;
                parts.nodes.insert(nid, Node::new(inode.ino, *index));
                state.part.set_node(*index, Some(nid));
                // It has what it was promised.
                if !state.part.promised_nodes.remove(index) {
                    core.space.add(1);
                }
                nid
            }
        };
        numbers.insert(*index, nid);
    }
    Ok(numbers)
}

/// Has nodes name the new blocks of the dirty pages.
fn place_pages<'p, D: BlockPort + MemoryArea>(
    core: &Core<D>,
    parts: &mut Parts,
    state: &mut State,
    numbers: &BTreeMap<u32, u32>,
    placed: impl Iterator<Item = (&'p u64, &'p u32)>,
) -> Result<()> {
    for (page, block) in placed {
        let (index, slot) = slot_of(*page);
        let old = parts.move_page((numbers[&index], slot), *block, core.layout.segment_blocks)?;
        state.part.blocks += u64::from(old.is_hole());
    }
    Ok(())
}

/// Has nodes forget pages, or hold space for some.
fn edit_nodes<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    parts: &mut Parts,
    state: &mut State,
    numbers: &BTreeMap<u32, u32>,
    edit: &Edit,
) -> Result<()> {
    for (index, nid) in numbers {
        let first = u64::from(*index) * ADDRESSES as u64;
        let within = |pages: &Range<u64>| {
            let at = |page: u64| page.clamp(first, first + ADDRESSES as u64) - first;
            at(pages.start) as usize..at(pages.end) as usize
        };
        let cleared = parts.clear_words(*nid, within(&edit.holes), core.layout.segment_blocks)?;
        core.space.give_back(cleared);
        state.part.blocks = state.part.blocks.saturating_sub(cleared);
        state.part.blocks += parts.hold_words(*nid, within(&edit.held))?;
    }
    Ok(())
}
