//! A domain (AU-8): the segments it owns, its part of NAT and SIT, its two logs, its nodes in memory. Nothing
//! of it is shared with another domain.

use std::collections::BTreeSet;

use amphi_radix::Radix;
use amphi_rt::sync::{Mutex, RwLock};
use amphi_vfs::{Error, Result};

use crate::cached_nodes::Nodes;
use crate::damaged;
pub use crate::format::Log;
use crate::format::{Address, NAT_ENTRIES, SUMMARY_SLOT_NODE, Summary};

/// The log of data, and that of nodes.
pub const DATA: usize = 0;
/// See [`DATA`].
pub const NODES: usize = 1;

/// A domain.
#[derive(Default)]
pub struct Domain {
    /// Which.
    pub number: u16,
    /// Shared by who reads or changes files of the domain, held alone by checkpoint and collection. Whoever
    /// holds it waits for the device, a processor's write version and the metadata store, never for an inode
    /// or another gate.
    pub gate: RwLock<()>,
    /// What it knows.
    pub parts: Mutex<Parts>,
}

/// What a domain knows.
#[derive(Default)]
pub struct Parts {
    /// The last checkpoint.
    pub version: u64,
    /// The next place in the order of changes.
    pub sequence: u64,
    /// Where data, and where nodes go next.
    pub logs: [Option<Log>; 2],
    /// Its segments (SIT).
    pub sit: Radix<Segment>,
    /// Its blocks of the NAT.
    pub nat: Radix<NatPart>,
    /// Nodes with other addresses since the last checkpoint, for who asks for them.
    pub moved: Option<BTreeSet<u32>>,
    /// Nodes in memory.
    pub nodes: Nodes,
    /// Numbers of nodes that can be given.
    pub free_nids: Vec<u32>,
    /// Those that can be after the next checkpoint.
    pub freed_nids: Vec<u32>,
    /// Pages of files for which a block is held.
    pub held: u64,
    /// Segments that have become full since the last checkpoint.
    pub full: Vec<u32>,
    /// Places of the intents since then.
    pub intents: Vec<u64>,
}

/// A segment that the domain owns.
#[derive(Clone, Debug)]
pub struct Segment {
    /// [`DATA`] or [`NODES`].
    pub kind: u8,
    /// Its valid blocks.
    pub valid: Vec<u64>,
    /// How many.
    pub count: u32,
    /// What its blocks hold, until its summary is on the device.
    pub summary: Option<Vec<Summary>>,
    /// Changed since the last checkpoint.
    pub dirty: bool,
    /// The checkpoint whose record stands in the metadata store.
    pub stored: Option<u64>,
}

/// A block of the NAT in memory.
pub struct NatPart {
    /// Where its nodes are.
    pub entries: Box<[Address]>,
    /// Which of the block's two pages is the newer one.
    pub copy: u8,
    /// Changed since the last checkpoint.
    pub dirty: bool,
}

/// Blocks for data and for nodes.
pub type Blocks = [Vec<u32>; 2];

impl Segment {
    /// One without valid blocks.
    pub fn new(kind: u8, blocks: u32) -> Self {
        let valid = vec![0; blocks.div_ceil(64) as usize];
        Self { kind, valid, count: 0, summary: Some(Vec::new()), dirty: true, stored: None }
    }

    /// Whether a block is valid.
    pub fn is_valid(&self, block: u32) -> bool {
        self.valid[block as usize / 64] >> (block % 64) & 1 == 1
    }

    fn set(&mut self, block: u32, on: bool) -> bool {
        let was = self.is_valid(block);
        let bit = 1 << (block % 64);
        let word = &mut self.valid[block as usize / 64];
        *word = if on { *word | bit } else { *word & !bit };
        self.count = if on { self.count + u32::from(!was) } else { self.count - u32::from(was) };
        self.dirty = true;
        was != on
    }
}

impl Parts {
    /// Where a node is.
    pub fn node_address(&self, nid: u32) -> Address {
        let part = self.nat.get(u64::from(nid) / NAT_ENTRIES as u64);
        part.map_or(Address::HOLE, |part| part.entries[nid as usize % NAT_ENTRIES])
    }

    /// Says where a node is now. What was there is invalid.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a number of another domain.
    pub fn set_node_address(&mut self, nid: u32, address: Address, segment_blocks: u32) -> Result<()> {
        let part = self.nat.get_mut(u64::from(nid) / NAT_ENTRIES as u64);
        let part = part.ok_or_else(|| damaged("node", nid.into()))?;
        let old = std::mem::replace(&mut part.entries[nid as usize % NAT_ENTRIES], address);
        part.dirty = true;
        if let Some(moved) = &mut self.moved {
            moved.insert(nid);
        }
        if let Some(block) = old.block() {
            self.invalidate(block, segment_blocks)?;
        }
        if let Some(block) = address.block() {
            self.validate(block, segment_blocks, nid, SUMMARY_SLOT_NODE)?;
        }
        Ok(())
    }

    fn segment_of(&mut self, block: u32, segment_blocks: u32) -> Result<(&mut Segment, u32)> {
        let segment = self.sit.get_mut(u64::from(block / segment_blocks));
        let segment = segment.ok_or_else(|| damaged("block", block.into()))?;
        Ok((segment, block % segment_blocks))
    }

    /// A block holds a page of a node, or the node.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a block of another domain, or one that is valid.
    pub fn validate(&mut self, block: u32, segment_blocks: u32, nid: u32, slot: u16) -> Result<()> {
        let (segment, within) = self.segment_of(block, segment_blocks)?;
        if !segment.set(within, true) {
            return Err(damaged("block", block.into()));
        }
        let summary = segment.summary.get_or_insert_default();
        if summary.len() <= within as usize {
            summary.resize(within as usize + 1, Summary::default());
        }
        summary[within as usize] = Summary { nid: nid.into(), slot: slot.into() };
        Ok(())
    }

    /// A block holds nothing any more.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a block of another domain, or one that is invalid.
    pub fn invalidate(&mut self, block: u32, segment_blocks: u32) -> Result<()> {
        let (segment, within) = self.segment_of(block, segment_blocks)?;
        if !segment.set(within, false) {
            return Err(damaged("block", block.into()));
        }
        Ok(())
    }

    /// Space is held for more pages, and for fewer. A damaged count ends at none.
    pub fn change_held(&mut self, more: u64, fewer: u64) {
        self.held = (self.held + more).saturating_sub(fewer);
    }

    /// Whether blocks go into a segment.
    pub fn is_active(&self, segment: u32) -> bool {
        self.logs.iter().flatten().any(|log| log.segment == segment)
    }

    /// The next place in the order of changes.
    pub fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence - 1
    }

    /// The segments for which `which` holds.
    pub fn segments(&self, which: impl Fn(&Segment) -> bool) -> Vec<u32> {
        let (mut found, mut from) = (Vec::new(), 0);
        while let Some((number, segment)) = self.sit.next(from) {
            if which(segment) {
                found.push(number as u32);
            }
            from = number + 1;
        }
        found
    }

    /// Invalid blocks of full segments, and blocks of all segments.
    pub fn garbage(&self, segment_blocks: u32) -> (u64, u64) {
        let (mut garbage, mut all, mut from) = (0, 0, 0);
        while let Some((number, segment)) = self.sit.next(from) {
            if !self.is_active(number as u32) {
                garbage += u64::from(segment_blocks - segment.count);
            }
            all += u64::from(segment_blocks);
            from = number + 1;
        }
        (garbage, all)
    }
}

impl Parts {
    /// The domain owns a block of the NAT from now on, if it does not yet.
    pub fn add_nat_block(&mut self, block: u32) {
        if self.nat.get(block.into()).is_none() {
            let entries = vec![Address::HOLE; NAT_ENTRIES].into();
            self.nat.insert(block.into(), NatPart { entries, copy: 0, dirty: true });
        }
    }

    /// How many segments each log lacks for so many blocks of data and of nodes.
    #[must_use]
    pub fn segments_for(&self, counts: [usize; 2], segment_blocks: u32) -> [usize; 2] {
        [DATA, NODES].map(|kind| {
            let room = self.logs[kind].map_or(0, |log| (segment_blocks - log.next) as usize);
            counts[kind].saturating_sub(room).div_ceil(segment_blocks as usize)
        })
    }

    /// Blocks at the ends of the logs, which go on in the segments `taken`: those that
    /// [`segments_for`](Self::segments_for) says, of data first.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if they are too few.
    pub fn place(&mut self, counts: [usize; 2], mut taken: Vec<u32>, segment_blocks: u32) -> Result<Blocks> {
        let mut blocks = Blocks::default();
        taken.reverse();
        for (kind, count) in counts.into_iter().enumerate() {
            while blocks[kind].len() < count {
                if self.logs[kind].is_none_or(|log| log.next == segment_blocks) {
                    if let Some(full) = self.logs[kind].take() {
                        self.leave(full.segment);
                    }
                    let segment = taken.pop().ok_or(Error::NoSpace)?;
                    self.sit.insert(segment.into(), Segment::new(kind as u8, segment_blocks));
                    self.logs[kind] = Some(Log { segment, next: 0 });
                }
                if let Some(log) = &mut self.logs[kind] {
                    blocks[kind].push(log.segment * segment_blocks + log.next);
                    log.next += 1;
                }
            }
        }
        Ok(blocks)
    }

    /// Nothing goes into a segment any more. If nothing in it is valid, the next checkpoint frees it.
    fn leave(&mut self, segment: u32) {
        self.full.push(segment);
        if let Some(its) = self.sit.get_mut(segment.into()) {
            its.dirty |= its.count == 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCKS: u32 = 8;

    /// A checkpoint does not free the segment into which a log goes, and does not look at it again unless it
    /// changes: it was lost, and collection chose it as its victim for ever.
    #[test]
    fn a_segment_that_a_log_leaves_empty_is_freed() {
        let mut parts = Parts::default();
        let [blocks, _] = parts.place([BLOCKS as usize, 0], vec![3], BLOCKS).expect("there is a segment");
        for (slot, block) in blocks.iter().enumerate() {
            parts.validate(*block, BLOCKS, 1, slot as u16).expect("it is new");
        }
        for block in blocks {
            parts.invalidate(block, BLOCKS).expect("it is valid");
        }
        assert!(parts.hand_out().is_empty(), "the log goes there");
        drop(parts.place([1, 0], vec![4], BLOCKS).expect("there is another segment"));
        assert_eq!(parts.hand_out(), [3]);
    }
}
