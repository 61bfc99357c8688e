//! Garbage collection (AU-8): in the domain with the highest share of garbage, the segment with the fewest
//! valid blocks.

use amphi_device::{BlockPort, Lpa, MemoryArea, Structure};
use amphi_vfs::{Error, Result};
use amphi_volume::io_error;

use crate::checkpoint;
use crate::core::Core;
use crate::domain::{DATA, Domain, NODES, Parts};
use crate::format::{Address, SUMMARY_SLOT_NODE, SsaBlock, Summary};
use crate::meta::damaged;
use crate::planted::{self, Bug};
use crate::writeback::write_blocks;

/// Most victims for one free segment, by segments that there are.
const VICTIMS_PER_SEGMENT: u32 = 4;

/// Makes at least one segment more free than there is, or says that it cannot.
///
/// # Errors
/// [`Error::NoSpace`] if there is no garbage; [`Error::Corrupt`], [`Error::Io`].
pub fn make_free<D: BlockPort + MemoryArea>(core: &Core<D>) -> Result<()> {
    let before = core.segments.len();
    let _one = core.collection.lock();
    // Somebody may have done it meanwhile.
    if core.segments.len() > before.max(core.segments.enough()) {
        return Ok(());
    }
    // What is garbage as a whole costs no copy: a checkpoint frees it.
    checkpoint::all(core)?;
    if core.segments.len() > before.max(core.segments.enough()) {
        return Ok(());
    }
    let size = core.layout.segment_blocks;
    let mut empty = vec![false; core.domains.len()];
    // A segment's worth of garbage takes several victims, and the nodes of what they held become garbage in
    // turn.
    for _ in 0..VICTIMS_PER_SEGMENT * core.layout.segments {
        let ratio = |domain: &Domain| {
            let (garbage, all) = domain.parts.lock().garbage(size);
            (garbage * 1_000_000).checked_div(all).unwrap_or(0)
        };
        let candidates = core.domains.iter().filter(|domain| !empty[usize::from(domain.number)]);
        let best = candidates.map(|domain| (ratio(domain), domain)).filter(|(ratio, _)| *ratio > 0);
        let Some((_, domain)) = best.max_by_key(|(ratio, domain)| (*ratio, domain.number)) else { break };
        let _gate = domain.gate.write();
        empty[usize::from(domain.number)] = !collect_one(core, domain)?;
        if core.segments.len() > before {
            return Ok(());
        }
    }
    Err(Error::NoSpace)
}

/// Empties the segment of a domain with the fewest valid blocks, and makes a checkpoint. False if none has
/// garbage.
fn collect_one<D: BlockPort + MemoryArea>(core: &Core<D>, domain: &Domain) -> Result<bool> {
    let size = core.layout.segment_blocks;
    let victim = {
        let parts = domain.parts.lock();
        let (mut best, mut from) = (None, 0);
        while let Some((number, segment)) = parts.sit.next(from) {
            from = number + 1;
            let garbage = segment.count < size && !parts.is_active(number as u32);
            if garbage && best.is_none_or(|(count, _)| segment.count < count) {
                best = Some((segment.count, number as u32));
            }
        }
        best
    };
    let Some((_, victim)) = victim else { return Ok(false) };
    let summary = read_summary(core, domain, victim)?;
    let done = move_blocks(core, domain, victim, &summary);
    if let Err(error) = &done {
        core.names.health.fail(error);
    }
    done?;
    core.counters.collected.add(1);
    if planted::has(Bug::SegmentFreeEarly) {
        domain.parts.lock().sit.remove(victim.into());
        core.segments.give_back([victim]);
        return Ok(true);
    }
    checkpoint::held(core, domain)?;
    Ok(true)
}

/// What the blocks of a segment hold.
fn read_summary<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    domain: &Domain,
    segment: u32,
) -> Result<Vec<Summary>> {
    let known = domain.parts.lock().sit.get(segment.into()).and_then(|segment| segment.summary.clone());
    if let Some(mut known) = known {
        known.resize(core.layout.segment_blocks as usize, Summary::default());
        return Ok(known);
    }
    let mut page = vec![0; amphi_device::PAGE_BYTES];
    let at = Lpa(core.layout.ssa_first() + u64::from(segment));
    core.device.read(at, &mut page, Structure::Bitmap).map_err(io_error)?;
    let block = SsaBlock::decode(&page, core.superblock.salt.get(), segment);
    let block = block.ok_or_else(|| damaged("the summary of segment", segment.into()))?;
    Ok(block.entries.to_vec())
}

/// Moves the valid blocks of a segment to the ends of the domain's logs. Nodes move when the next checkpoint
/// writes them.
fn move_blocks<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    domain: &Domain,
    victim: u32,
    summary: &[Summary],
) -> Result<()> {
    let size = core.layout.segment_blocks;
    let wrong = |block: u32| damaged("the summary of block", u64::from(victim * size + block));
    let (kind, valid) = {
        let parts = domain.parts.lock();
        let segment = parts.sit.get(victim.into()).ok_or_else(|| damaged("segment", victim.into()))?;
        (segment.kind, (0..size).filter(|block| segment.is_valid(*block)).collect::<Vec<_>>())
    };
    let mut owners = Vec::with_capacity(valid.len());
    for within in valid {
        let Summary { nid, slot } = summary[within as usize];
        let block = victim * size + within;
        let mut parts = core.with_nodes(domain, &[nid.get()])?;
        if usize::from(kind) == NODES {
            let there =
                slot.get() == SUMMARY_SLOT_NODE && parts.node_address(nid.get()) == Address::at(block);
            let node = parts.nodes.get_mut(&nid.get()).filter(|_| there).ok_or_else(|| wrong(within))?;
            node.dirty = true;
            continue;
        }
        let node = parts.nodes.get_mut(&nid.get()).ok_or_else(|| wrong(within))?;
        if node.addresses.get(usize::from(slot.get())) != Some(&Address::at(block)) {
            return Err(wrong(within));
        }
        // It stays in memory until it is written.
        node.dirty = true;
        owners.push((block, nid.get(), slot.get()));
    }
    let mut pages = Vec::with_capacity(owners.len());
    for (block, ..) in &owners {
        pages.push(core.read_block(*block, Structure::Data)?);
    }
    let mut parts = domain.parts.lock();
    let mut counts = [0; 2];
    counts[DATA] = owners.len();
    let blocks = core.take_blocks(domain, &mut parts, counts, true)?.ok_or(Error::NoSpace)?;
    for ((old, nid, slot), new) in owners.iter().zip(&blocks[DATA]) {
        rename_block(&mut parts, (*old, *new), (*nid, *slot), size)?;
    }
    core.counters.moved.add(owners.len() as u64);
    let writes = blocks[DATA].iter().zip(&pages).map(|(block, page)| (*block, &page[..])).collect();
    write_blocks(core, &[(&writes, Structure::Data)])
}

fn rename_block(parts: &mut Parts, (old, new): (u32, u32), (nid, slot): (u32, u16), size: u32) -> Result<()> {
    if let Some(node) = parts.nodes.get_mut(&nid) {
        node.addresses[usize::from(slot)] = Address::at(new);
    }
    parts.invalidate(old, size)?;
    parts.validate(new, size, nid, slot)
}
