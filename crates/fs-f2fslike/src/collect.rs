//! Garbage collection: the segment with the fewest valid blocks is emptied, and a checkpoint frees it.

use amphi_device::BlockPort;
use amphi_segments::{Parts, move_blocks, read_summary, victim};
use amphi_vfs::{Error, Result};
use std::sync::atomic::Ordering;

use crate::checkpoint;
use crate::core::Core;

/// Most victims at a time, by segments that there are.
const VICTIMS_PER_SEGMENT: u32 = 4;

/// Has `wanted` segments be free beyond those that are held for checkpoints and for this.
///
/// # Errors
/// [`Error::NoSpace`] if there is no garbage; [`Error::Corrupt`], [`Error::Io`].
pub fn make_free<D: BlockPort>(core: &Core<D>, wanted: usize) -> Result<()> {
    let _one = core.collection.lock();
    let _gate = core.domain.gate.write();
    if collect(core, core.segments.enough() - 2 + wanted)? { Ok(()) } else { Err(Error::NoSpace) }
}

/// Has what is dirty be on the device, and some segments be free, as far as there is garbage.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn make_room<D: BlockPort>(core: &Core<D>) -> Result<()> {
    let _one = core.collection.lock();
    let _gate = core.domain.gate.write();
    collect(core, core.segments.enough() - 2).map(drop)
}

/// Whether so many segments are free, with a checkpoint and what collection it takes. The caller holds the
/// gate alone.
fn collect<D: BlockPort>(core: &Core<D>, enough: usize) -> Result<bool> {
    checkpoint::held(core, false)?;
    for _ in 0..VICTIMS_PER_SEGMENT * core.layout.segments {
        if core.segments.count() >= enough {
            break;
        }
        let Some(number) = victim(&core.domain.parts.lock(), core.layout.segment_blocks) else { break };
        let moved = empty(core, number);
        if let Err(error) = &moved {
            core.names.health.fail(error);
        }
        moved?;
        checkpoint::held(core, false)?;
    }
    Ok(core.segments.count() >= enough)
}

fn empty<D: BlockPort>(core: &Core<D>, number: u32) -> Result<()> {
    let domain = &core.domain;
    let summary = read_summary(&core.ground, domain, number)?;
    let take = |parts: &mut Parts, counts| core.take_blocks(parts, counts, true);
    move_blocks(&core.ground, domain, number, &summary, take)?;
    let dirty = domain.parts.lock().nodes.values().filter(|node| node.dirty).count();
    // Blocks of entries are clean since the checkpoint before.
    core.dirtied.store(dirty, Ordering::Relaxed);
    Ok(())
}
