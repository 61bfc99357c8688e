//! A domain (AU-8): the segments it owns, its part of NAT and SIT, its two logs, its nodes in memory. Nothing
//! of it is shared with another domain.

use amphi_device::{BlockPort, MemoryArea};
use amphi_lsm::Batch;
use amphi_radix::Radix;
use amphi_rt::hash::HashMap;
use amphi_rt::hash::mix;
use amphi_rt::sync::{Mutex, RwLock};
use amphi_vfs::{Error, Ino, Result};

use crate::core::Core;
use crate::format::{
    ADDRESSES, Address, Intent, Key, NAT_ENTRIES, SUMMARY_SLOT_NODE, Summary, encode_intents,
};
use crate::meta;
use crate::planted::{self, Bug};

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
    /// Nodes in memory.
    pub nodes: HashMap<u32, Node>,
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

/// An active segment.
#[derive(Clone, Copy, Debug)]
pub struct Log {
    /// Which.
    pub segment: u32,
    /// Its first free block.
    pub next: u32,
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

/// A node in memory.
#[derive(Clone)]
pub struct Node {
    /// The file.
    pub ino: Ino,
    /// Which part of it.
    pub index: u32,
    /// Where the pages are.
    pub addresses: Box<[Address; ADDRESSES]>,
    /// When it was written last.
    pub sequence: u64,
    /// Changed since.
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

impl Node {
    /// One that names nothing.
    pub fn new(ino: Ino, index: u32) -> Self {
        Self { ino, index, addresses: Box::new([Address::HOLE; ADDRESSES]), sequence: 0, dirty: true }
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
        let part = part.ok_or_else(|| meta::damaged("node", nid.into()))?;
        let old = std::mem::replace(&mut part.entries[nid as usize % NAT_ENTRIES], address);
        part.dirty = true;
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
        let segment = segment.ok_or_else(|| meta::damaged("block", block.into()))?;
        Ok((segment, block % segment_blocks))
    }

    /// A block holds a page of a node, or the node.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a block of another domain, or one that is valid.
    pub fn validate(&mut self, block: u32, segment_blocks: u32, nid: u32, slot: u16) -> Result<()> {
        let (segment, within) = self.segment_of(block, segment_blocks)?;
        if !segment.set(within, true) {
            return Err(meta::damaged("block", block.into()));
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
            return Err(meta::damaged("block", block.into()));
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

impl<D: BlockPort + MemoryArea> Core<D> {
    /// The domain of a file.
    pub fn domain(&self, ino: Ino) -> &Domain {
        if planted::has(Bug::OneDomain) {
            return &self.domains[0];
        }
        let hash = mix(ino.0.wrapping_add(0x9E37_79B9_7F4A_7C15));
        &self.domains[(hash % self.domains.len() as u64) as usize]
    }

    /// Blocks at the ends of the domain's logs, all that were asked for or none. Segments that are taken for
    /// them are noted in the metadata store before anything is written there. `last` may take the last
    /// segments.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn take_blocks(
        &self,
        domain: &Domain,
        parts: &mut Parts,
        counts: [usize; 2],
        last: bool,
    ) -> Result<Option<Blocks>> {
        let size = self.layout.segment_blocks;
        let missing = |log: &Option<Log>, count: usize| {
            let room = log.map_or(0, |log| (size - log.next) as usize);
            count.saturating_sub(room).div_ceil(size as usize)
        };
        let wanted = [missing(&parts.logs[DATA], counts[DATA]), missing(&parts.logs[NODES], counts[NODES])];
        let Some(mut taken) = self.segments.take(wanted[DATA] + wanted[NODES], last) else { return Ok(None) };
        if !taken.is_empty() {
            let kinds = std::iter::repeat_n(0, wanted[DATA]).chain(std::iter::repeat_n(1, wanted[NODES]));
            let intents: Vec<_> =
                taken.iter().zip(kinds).map(|(segment, kind)| Intent::Take(*segment, kind)).collect();
            let sequence = parts.next_sequence();
            let mut batch = Batch::new();
            meta::put(&mut batch, Key::Intents(domain.number, sequence), &encode_intents(&intents))?;
            if !planted::has(Bug::SegmentNotNoted) {
                self.meta.write(&batch)?;
            }
            parts.intents.push(sequence);
        }
        let mut blocks = Blocks::default();
        taken.reverse();
        for (kind, count) in counts.into_iter().enumerate() {
            while blocks[kind].len() < count {
                if parts.logs[kind].is_none_or(|log| log.next == size) {
                    let full = parts.logs[kind].take();
                    parts.full.extend(full.map(|log| log.segment));
                    let segment = taken.pop().ok_or(Error::NoSpace)?;
                    parts.sit.insert(segment.into(), Segment::new(kind as u8, size));
                    parts.logs[kind] = Some(Log { segment, next: 0 });
                }
                if let Some(log) = &mut parts.logs[kind] {
                    blocks[kind].push(log.segment * size + log.next);
                    log.next += 1;
                }
            }
        }
        Ok(Some(blocks))
    }

    /// Numbers that the domain can give to new nodes.
    pub fn numbers_free(&self, parts: &Parts) -> usize {
        // Number 0 stands for none.
        parts.free_nids.len() + self.nat_blocks.lock().len() * (NAT_ENTRIES - 1)
    }

    /// A number for a new node.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there is none before the next checkpoint.
    pub fn take_nid(&self, parts: &mut Parts) -> Result<u32> {
        if parts.free_nids.is_empty() {
            let block = self.nat_blocks.lock().pop_first().ok_or(Error::NoSpace)?;
            parts.add_nat_block(block);
            let first = block * NAT_ENTRIES as u32;
            // Number 0 stands for none.
            parts.free_nids.extend((first.max(1)..first + NAT_ENTRIES as u32).rev());
        }
        parts.free_nids.pop().ok_or(Error::NoSpace)
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
}
