//! What goes with a change: blocks of files that are cut, and nodes that are freed.
//!
//! The metadata store hears of it in the batch that makes it count, as intents, since nodes and NAT are as of
//! the last checkpoint after a crash: recovery repeats what intents say.

use amphi_device::{BlockPort, MemoryArea, Structure};
use amphi_lsm::Batch;
use amphi_rt::sync::RwLockReadGuard;
use amphi_segments::{DATA, Domain};
use amphi_vfs::{Ino, Result};

use crate::collect;
use crate::core::Core;
use crate::format::{ADDRESSES, Address, Intent, Key, PAGE, encode_intents};
use crate::meta;
use crate::nodes::slot_of;
use crate::part::{Inode, State};

/// Bytes of a file that a node covers.
pub const NODE_SPAN: u64 = (ADDRESSES * PAGE) as u64;

/// What goes with a change. The gate is held until it has gone.
pub struct Drops<'a> {
    domain: &'a Domain,
    _gate: RwLockReadGuard<'a, ()>,
    intents: Vec<Intent>,
    /// Nodes, with the blocks that they name, and how many more they hold.
    nodes: Vec<(u32, Vec<u32>, u64)>,
    cut: Option<CutNode>,
    /// Blocks of space that are free then.
    units: u64,
}

/// A node that names fewer pages.
struct CutNode {
    nid: u32,
    /// The first slot that is cut.
    slot: usize,
    /// The page before, which has moved here with zeros behind the new end.
    tail: Option<u32>,
}

impl Drops<'_> {
    /// Writes a batch with the intents in it, then has all go.
    ///
    /// # Errors
    /// [`amphi_vfs::Error::Corrupt`], [`amphi_vfs::Error::Io`].
    pub fn commit<D: BlockPort + MemoryArea>(self, core: &Core<D>, batch: &mut Batch) -> Result<()> {
        // Before the gate is free: no checkpoint may come behind a failure.
        core.names.health.judge(self.go(core, batch))
    }

    fn go<D: BlockPort + MemoryArea>(&self, core: &Core<D>, batch: &mut Batch) -> Result<()> {
        let size = core.layout.segment_blocks;
        let sequence = {
            let mut parts = self.domain.parts.lock();
            let sequence = parts.next_sequence();
            parts.intents.push(sequence);
            sequence
        };
        meta::put(batch, Key::Intents(self.domain.number, sequence), &encode_intents(&self.intents))?;
        core.meta.write(batch)?;
        let cut: Vec<_> = self.cut.iter().map(|cut| cut.nid).collect();
        let mut parts = core.ground.with_nodes(self.domain, &cut)?;
        for (nid, blocks, held) in &self.nodes {
            for block in blocks {
                parts.invalidate(*block, size)?;
            }
            parts.change_held(0, *held);
            parts.set_node_address(*nid, Address::HOLE, size)?;
            parts.nodes.remove(nid);
            parts.freed_nids.push(*nid);
        }
        if let Some(CutNode { nid, slot, tail }) = &self.cut {
            let (nid, slot) = (*nid, *slot);
            parts.clear_words(nid, slot..ADDRESSES, size)?;
            if let Some(block) = tail {
                parts.move_page((nid, slot - 1), *block, size)?;
            }
            parts.nodes.touch(&nid);
        }
        core.space.give_back(self.units);
        Ok(())
    }
}

/// Has nodes of a file go, with all that they name.
///
/// # Errors
/// [`amphi_vfs::Error::Corrupt`], [`amphi_vfs::Error::Io`].
pub fn free_nodes<'a, D: BlockPort + MemoryArea>(
    core: &'a Core<D>,
    ino: Ino,
    state: &mut State,
    nodes: &[(u32, u32)],
) -> Result<Drops<'a>> {
    let domain = core.domain(ino);
    let gate = domain.gate.read();
    let mut drops =
        Drops { domain, _gate: gate, intents: Vec::new(), nodes: Vec::new(), cut: None, units: 0 };
    add_nodes(core, &mut drops, ino, state, nodes)?;
    Ok(drops)
}

fn add_nodes<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    drops: &mut Drops<'_>,
    ino: Ino,
    state: &mut State,
    nodes: &[(u32, u32)],
) -> Result<()> {
    for (index, nid) in nodes {
        let first = u64::from(*index) * ADDRESSES as u64;
        let addresses = core.addresses(drops.domain, (ino, state), first, first + ADDRESSES as u64)?;
        let held = addresses.iter().filter(|address| !address.is_hole()).count() as u64;
        let blocks: Vec<_> = addresses.iter().filter_map(|address| address.block()).collect();
        let reserved = held - blocks.len() as u64;
        drops.nodes.push((*nid, blocks, reserved));
        drops.intents.push(Intent::Free(*nid));
        drops.units += held + 1;
        state.part.blocks = state.part.blocks.saturating_sub(held);
        state.part.set_node(*index, None);
    }
    Ok(())
}

/// What goes when a file is cut to `size`; nothing if it has nothing there.
///
/// # Errors
/// [`amphi_vfs::Error::Corrupt`], [`amphi_vfs::Error::Io`].
pub fn plan_cut<'a, D: BlockPort + MemoryArea>(
    core: &'a Core<D>,
    inode: &Inode,
    state: &mut State,
    size: u64,
) -> Result<Option<Drops<'a>>> {
    let domain = core.domain(inode.ino);
    let beyond = size.div_ceil(NODE_SPAN) as u32;
    let (page, within) = (size / PAGE as u64, size as usize % PAGE);
    let (gate, tail) = loop {
        let gate = domain.gate.read();
        if within == 0 {
            break (gate, None);
        }
        let Some(old) = core.addresses(domain, (inode.ino, state), page, page + 1)?[0].block() else {
            break (gate, None);
        };
        let mut counts = [0; 2];
        counts[DATA] = 1;
        let Some([blocks, _]) = core.take_blocks(domain, &mut domain.parts.lock(), counts, false)? else {
            drop(gate);
            collect::make_free(core)?;
            continue;
        };
        let mut bytes = match state.part.file.pages.get(page) {
            Some(cached) => cached.data.to_vec(),
            None => core.ground.read_block(old, Structure::Data)?,
        };
        bytes[within..].fill(0);
        core.ground.write(core.ground.lpa(blocks[0]), &bytes, Structure::Data)?;
        core.ground.settle()?;
        break (gate, Some(blocks[0]));
    };
    let mut drops =
        Drops { domain, _gate: gate, intents: Vec::new(), nodes: Vec::new(), cut: None, units: 0 };
    let gone: Vec<_> = state.part.nodes.range(beyond..).map(|(index, nid)| (*index, *nid)).collect();
    add_nodes(core, &mut drops, inode.ino, state, &gone)?;
    let (index, _) = slot_of(page);
    if let Some(nid) = state.part.nodes.get(&index).copied() {
        let start = u64::from(index) * NODE_SPAN;
        let first = size.div_ceil(PAGE as u64);
        let end = (u64::from(index) + 1) * ADDRESSES as u64;
        let addresses = core.addresses(domain, (inode.ino, state), first, end)?;
        let held = addresses.iter().filter(|address| !address.is_hole()).count() as u64;
        state.part.blocks = state.part.blocks.saturating_sub(held);
        drops.units += held;
        drops.intents.push(Intent::Cut(nid, (size - start) as u32, NODE_SPAN as u32));
        let slot = (first - u64::from(index) * ADDRESSES as u64) as usize;
        drops.cut = Some(CutNode { nid, slot, tail });
    }
    Ok((!drops.intents.is_empty()).then_some(drops))
}
