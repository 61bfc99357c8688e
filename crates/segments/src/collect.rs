//! Garbage collection: the segment with the fewest valid blocks, and how these move.

use amphi_device::{BlockPort, Lpa, Structure};
use amphi_vfs::{Error, Result};
use amphi_volume::io_error;

use crate::damaged;
use crate::domain::{Blocks, DATA, Domain, NODES, Parts};
use crate::format::{Address, SUMMARY_SLOT_NODE, SsaBlock, Summary};
use crate::ground::Ground;

/// The segment with the fewest valid blocks that has garbage and into which nothing goes any more.
#[must_use]
pub fn victim(parts: &Parts, segment_blocks: u32) -> Option<u32> {
    let (mut best, mut from) = (None, 0);
    while let Some((number, segment)) = parts.sit.next(from) {
        from = number + 1;
        let garbage = segment.count < segment_blocks && !parts.is_active(number as u32);
        if garbage && best.is_none_or(|(count, _)| segment.count < count) {
            best = Some((segment.count, number as u32));
        }
    }
    best.map(|(_, number)| number)
}

/// What the blocks of a segment hold.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn read_summary<D: BlockPort>(ground: &Ground<D>, domain: &Domain, segment: u32) -> Result<Vec<Summary>> {
    let known = domain.parts.lock().sit.get(segment.into()).and_then(|segment| segment.summary.clone());
    if let Some(mut known) = known {
        known.resize(ground.areas.segment_blocks as usize, Summary::default());
        return Ok(known);
    }
    let mut page = vec![0; amphi_device::PAGE_BYTES];
    let at = Lpa(ground.areas.ssa_first() + u64::from(segment));
    ground.device.read(at, &mut page, Structure::Bitmap).map_err(io_error)?;
    let block = SsaBlock::decode(&page, ground.salt, segment);
    let block = block.ok_or_else(|| damaged("the summary of segment", segment.into()))?;
    Ok(block.entries.to_vec())
}

/// Moves the valid blocks of a segment to the ends of the domain's logs. Nodes move when the next checkpoint
/// writes them. `take` takes blocks for them. Returns how many blocks of data moved.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`]; [`Error::NoSpace`] if `take` finds none.
pub fn move_blocks<D: BlockPort>(
    ground: &Ground<D>,
    domain: &Domain,
    victim: u32,
    summary: &[Summary],
    take: impl FnOnce(&mut Parts, [usize; 2]) -> Result<Option<Blocks>>,
) -> Result<u64> {
    let size = ground.areas.segment_blocks;
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
        let mut parts = ground.with_nodes(domain, &[nid.get()])?;
        if usize::from(kind) == NODES {
            let there =
                slot.get() == SUMMARY_SLOT_NODE && parts.node_address(nid.get()) == Address::at(block);
            if !there {
                return Err(wrong(within));
            }
            parts.nodes.touch(&nid.get());
            continue;
        }
        if parts.nodes[&nid.get()].addresses.get(usize::from(slot.get())) != Some(&Address::at(block)) {
            return Err(wrong(within));
        }
        // It stays in memory until it is written.
        parts.nodes.touch(&nid.get());
        owners.push((block, nid.get(), slot.get()));
    }
    let mut pages = Vec::with_capacity(owners.len());
    for (block, ..) in &owners {
        pages.push(ground.read_block(*block, Structure::Data)?);
    }
    let mut parts = domain.parts.lock();
    let mut counts = [0; 2];
    counts[DATA] = owners.len();
    let blocks = take(&mut parts, counts)?.ok_or(Error::NoSpace)?;
    for ((_, nid, slot), new) in owners.iter().zip(&blocks[DATA]) {
        parts.move_page((*nid, usize::from(*slot)), *new, size)?;
    }
    let writes = blocks[DATA].iter().zip(&pages).map(|(block, page)| (*block, &page[..])).collect();
    ground.write_blocks(&[(&writes, Structure::Data)])?;
    Ok(owners.len() as u64)
}
