//! Garbage collection (AU-8): in the domain with the highest share of garbage, the segment with the fewest
//! valid blocks.

use amphi_device::{BlockPort, MemoryArea};
use amphi_segments::{Domain, Parts, move_blocks, read_summary, victim};
use amphi_vfs::{Error, Result};

use crate::checkpoint;
use crate::core::Core;
use crate::planted::{self, Bug};

/// Most victims for one free segment, by segments that there are.
const VICTIMS_PER_SEGMENT: u32 = 4;

/// Makes at least one segment more free than there is, or says that it cannot.
///
/// # Errors
/// [`Error::NoSpace`] if there is no garbage; [`Error::Corrupt`], [`Error::Io`].
pub fn make_free<D: BlockPort + MemoryArea>(core: &Core<D>) -> Result<()> {
    let before = core.segments.count();
    let _one = core.collection.lock();
    // Somebody may have done it meanwhile.
    if core.segments.count() > before.max(core.segments.enough()) {
        return Ok(());
    }
    // What is garbage as a whole costs no copy: a checkpoint frees it.
    checkpoint::all(core)?;
    if core.segments.count() > before.max(core.segments.enough()) {
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
        if core.segments.count() > before {
            return Ok(());
        }
    }
    Err(Error::NoSpace)
}

/// Empties the segment of a domain with the fewest valid blocks, and makes a checkpoint. False if none has
/// garbage.
fn collect_one<D: BlockPort + MemoryArea>(core: &Core<D>, domain: &Domain) -> Result<bool> {
    let victim = victim(&domain.parts.lock(), core.layout.segment_blocks);
    let Some(victim) = victim else { return Ok(false) };
    let summary = read_summary(&core.ground, domain, victim)?;
    let take = |parts: &mut Parts, counts| core.take_blocks(domain, parts, counts, true);
    let done = move_blocks(&core.ground, domain, victim, &summary, take);
    core.counters.moved.add(core.names.health.judge(done)?);
    core.counters.collected.add(1);
    if planted::has(Bug::SegmentFreeEarly) {
        domain.parts.lock().sit.remove(victim.into());
        core.segments.give_back([victim]);
        return Ok(true);
    }
    checkpoint::held(core, domain)?;
    Ok(true)
}
