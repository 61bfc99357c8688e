//! Garbage collection: the segment with the fewest valid blocks is emptied, and a checkpoint frees it. And
//! when it is time for that.

use std::sync::atomic::Ordering;

use amphi_device::BlockPort;
use amphi_segments::{Parts, move_blocks, read_summary, victim};
use amphi_vfs::Result;

use crate::checkpoint;
use crate::core::Core;

/// Nodes and blocks of entries that one change makes dirty at the most: two directories with three nodes and
/// a block of entries each, three inodes with their attributes.
const CHANGE_MOST: usize = 16;
/// Dirty nodes and blocks of entries from which on a checkpoint is made.
const DIRTY_MOST: usize = 16_384;
/// Most victims at a time, by segments that there are.
const VICTIMS_PER_SEGMENT: u32 = 4;

impl<D: BlockPort> Core<D> {
    /// Before a change, without the gate: has what is dirty fit the free segments, so that a checkpoint can
    /// always be made.
    ///
    /// # Errors
    /// [`amphi_vfs::Error::Corrupt`], [`amphi_vfs::Error::Io`].
    pub fn balance(&self, more: usize) -> Result<()> {
        let dirty = self.dirtied.load(Ordering::Relaxed) + CHANGE_MOST + more;
        // Each log begins a segment that it does not fill, and others change something, too.
        let room = self.segments.count().saturating_sub(3) * self.layout.segment_blocks as usize;
        let numbers = {
            let parts = self.domain.parts.lock();
            parts.free_nids.len() >= CHANGE_MOST + more || parts.freed_nids.is_empty()
        };
        if dirty > room.min(DIRTY_MOST) || !numbers {
            make_free(self, 0)?;
        }
        Ok(())
    }
}

/// Has what is dirty be on the device, and `wanted` segments be free beyond those that are held for
/// checkpoints and for this, as far as there is garbage. Returns whether they are.
///
/// # Errors
/// [`amphi_vfs::Error::Corrupt`], [`amphi_vfs::Error::Io`].
pub fn make_free<D: BlockPort>(core: &Core<D>, wanted: usize) -> Result<bool> {
    let _one = core.collection.lock();
    let _gate = core.domain.gate.write();
    let enough = core.segments.enough() - 2 + wanted;
    checkpoint::held(core, false)?;
    for _ in 0..VICTIMS_PER_SEGMENT * core.layout.segments {
        if core.segments.count() >= enough {
            break;
        }
        let Some(number) = victim(&core.domain.parts.lock(), core.layout.segment_blocks) else { break };
        core.names.health.judge(empty(core, number))?;
        checkpoint::held(core, false)?;
    }
    Ok(core.segments.count() >= enough)
}

fn empty<D: BlockPort>(core: &Core<D>, number: u32) -> Result<()> {
    let domain = &core.domain;
    let summary = read_summary(&core.ground, domain, number)?;
    let take = |parts: &mut Parts, counts| core.take_blocks(parts, counts, true);
    move_blocks(&core.ground, domain, number, &summary, take)?;
    let dirty = domain.parts.lock().nodes.dirty().len();
    // Blocks of entries are clean since the checkpoint before.
    core.dirtied.store(dirty, Ordering::Relaxed);
    Ok(())
}
