//! The parts of a checkpoint that are blocks of the NAT and summaries, and what is free by it.

use amphi_device::{BlockPort, Lpa, Structure};
use amphi_vfs::Result;
use zerocopy::IntoBytes;

use crate::domain::{Domain, Parts};
use crate::format::{NatBlock, SsaBlock, Summary};
use crate::ground::Ground;

/// Writes NAT blocks that have changed, each over its older copy.
///
/// # Errors
/// [`amphi_vfs::Error::Io`].
pub fn write_nat<D: BlockPort>(
    ground: &Ground<D>,
    domain: &Domain,
    parts: &mut Parts,
    version: u64,
) -> Result<()> {
    let mut from = 0;
    while let Some((number, part)) = parts.nat.next(from) {
        from = number + 1;
        if !part.dirty {
            continue;
        }
        let copy = 1 - part.copy;
        let block = NatBlock::new(ground.salt, domain.number, number as u32, version, &part.entries);
        let at = Lpa(ground.areas.nat_first + 2 * number + u64::from(copy));
        ground.write(at, block.as_bytes(), Structure::Pointer)?;
        if let Some(part) = parts.nat.get_mut(number) {
            (part.copy, part.dirty) = (copy, false);
        }
    }
    Ok(())
}

/// Writes the summaries of segments that have become full.
///
/// # Errors
/// [`amphi_vfs::Error::Io`].
pub fn write_summaries<D: BlockPort>(ground: &Ground<D>, parts: &mut Parts) -> Result<()> {
    for number in std::mem::take(&mut parts.full) {
        let Some(segment) = parts.sit.get_mut(number.into()) else { continue };
        let Some(summary) = segment.summary.take() else { continue };
        let block = SsaBlock::new(ground.salt, number, &summary);
        let at = Lpa(ground.areas.ssa_first() + u64::from(number));
        ground.write(at, block.as_bytes(), Structure::Bitmap)?;
    }
    Ok(())
}

impl Parts {
    /// What the blocks of the segment hold that a log fills.
    #[must_use]
    pub fn log_summary(&self, kind: usize) -> Vec<Summary> {
        let Some(log) = self.logs[kind] else { return Vec::new() };
        let known = self.sit.get(log.segment.into()).and_then(|segment| segment.summary.clone());
        let mut summary = known.unwrap_or_default();
        summary.resize(log.next as usize, Summary::default());
        summary
    }

    /// What was changed has come to the device. Returns the segments that are free by it; numbers of nodes
    /// can be given again.
    pub fn hand_out(&mut self) -> Vec<u32> {
        let mut free = Vec::new();
        for number in self.segments(|segment| segment.dirty) {
            let active = self.is_active(number);
            let Some(segment) = self.sit.get_mut(number.into()) else { continue };
            segment.dirty = false;
            if segment.count == 0 && !active {
                self.sit.remove(number.into());
                free.push(number);
            }
        }
        self.free_nids.append(&mut self.freed_nids);
        free
    }
}
