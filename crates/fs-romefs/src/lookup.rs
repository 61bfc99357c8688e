//! Parallel look-up with early termination (RO-6, algorithm 1 of the paper): a file's two trees are searched
//! side by side for a range of its bytes. What the logs have wins. Once they have all of it, the search of
//! the data blocks is dropped; else data blocks are asked for the rest alone, so that nothing stale is read.
//!
//! The searches are descents that one task takes in turns, a data block a step. Both trees are in host memory
//! (a file's mapping pages are read when its logs become known), so a step takes less time than handing it to
//! another task would. The logs have the first step, and the last: of a request within one data block that
//! they have in full, the radix tree is not asked at all.

use std::ops::Range;

use amphi_device::{BlockPort, MemoryArea};
use amphi_vfs::Result;
use smallvec::SmallVec;

use crate::core::Core;
use crate::format::{LEAF_ENTRIES, PAGE, Slot};
use crate::logs;
use crate::part::State;
use crate::planted::{self, Bug};
use crate::tree::{Log, Tree};

/// A piece of what is read.
pub struct Piece {
    /// Where it goes.
    pub into: Range<usize>,
    /// Where it comes from.
    pub source: Source,
}

/// Where bytes are.
pub enum Source {
    /// At an address of the memory zone.
    Log(u64),
    /// In a block of the device, from this byte on.
    Block(u32, u64),
    /// Nowhere: they are zeros.
    Hole,
}

/// Pieces of what is read.
pub type Pieces = SmallVec<[Piece; 8]>;

/// Bytes of one data block that are no log's: the block, and where they are in there.
type Rest = SmallVec<[(u64, Range<u64>); 8]>;

/// The bytes of a file that are looked up.
struct Wanted {
    bytes: Range<u64>,
    block_bytes: u64,
    /// Where the first of them goes.
    into: usize,
}

impl Wanted {
    const fn blocks(&self) -> Range<u64> {
        self.bytes.start / self.block_bytes..self.bytes.end.div_ceil(self.block_bytes)
    }

    /// Those of a data block, counted from its first.
    fn within(&self, block: u64) -> Range<u64> {
        let start = block * self.block_bytes;
        self.bytes.start.max(start) - start..self.bytes.end.min(start + self.block_bytes) - start
    }

    /// Where bytes of a data block go.
    const fn place(&self, block: u64, range: &Range<u64>) -> Range<usize> {
        let first = block * self.block_bytes + range.start - self.bytes.start;
        let from = self.into + first as usize;
        from..from + (range.end - range.start) as usize
    }
}

/// The search of the B+tree.
struct LogSearch<'a, D: BlockPort + MemoryArea + 'static> {
    core: &'a Core<D>,
    tree: Option<&'a Tree>,
    next: u64,
    rest: Rest,
}

impl<D: BlockPort + MemoryArea> LogSearch<'_, D> {
    /// Looks one data block up: what its logs have is a piece, the rest is told.
    fn step(&mut self, wanted: &Wanted, pieces: &mut Pieces) {
        let block = self.next;
        self.next += 1;
        let within = wanted.within(block);
        let leaf = self.tree.and_then(|tree| tree.get(block));
        let logs = leaf.into_iter().flat_map(|leaf| &leaf.logs).filter(|log| log.meets(&within));
        let mut logs: SmallVec<[Log; LEAF_ENTRIES]> = logs.copied().collect();
        logs.sort_unstable_by_key(|log| log.offset);
        let mut at = within.start;
        for log in &logs {
            let part = log.range().start.max(within.start)..log.range().end.min(within.end);
            if at < part.start {
                self.rest.push((block, at..part.start));
            }
            at = part.end;
            let address = self.core.layout.log(log.page) + part.start % PAGE as u64;
            pieces.push(Piece { into: wanted.place(block, &part), source: Source::Log(address) });
        }
        if at < within.end {
            self.rest.push((block, at..within.end));
        }
    }
}

/// The search of the radix tree.
struct SlotSearch<'a, D: BlockPort + MemoryArea + 'static> {
    core: &'a Core<D>,
    state: &'a State,
    first: u64,
    slots: SmallVec<[Slot; 16]>,
}

impl<D: BlockPort + MemoryArea> SlotSearch<'_, D> {
    fn next(&self) -> u64 {
        self.first + self.slots.len() as u64
    }

    /// Looks one data block up.
    fn step(&mut self) -> Result<()> {
        let slot = self.core.slot(&self.state.part.mapping, self.next())?;
        self.slots.push(slot);
        Ok(())
    }

    /// The slot of a data block, looked up now if it has not been.
    fn of(&self, block: u64) -> Result<Slot> {
        match self.slots.get((block - self.first) as usize) {
            Some(slot) => Ok(*slot),
            None => self.core.slot(&self.state.part.mapping, block),
        }
    }
}

/// Finds the bytes `bytes` of a file, which go to `into` on.
///
/// # Errors
/// [`amphi_vfs::Error::Corrupt`], [`amphi_vfs::Error::Io`].
pub fn find<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    state: &State,
    bytes: Range<u64>,
    into: usize,
    pieces: &mut Pieces,
) -> Result<()> {
    let wanted = Wanted { bytes, block_bytes: core.block_bytes(), into };
    let blocks = wanted.blocks();
    let mut logs = LogSearch { core, tree: logs::known(state), next: blocks.start, rest: Rest::new() };
    let mut slots = SlotSearch { core, state, first: blocks.start, slots: SmallVec::new() };
    while logs.next < blocks.end {
        logs.step(&wanted, pieces);
        // The last step of the logs may end the search.
        if logs.next < blocks.end {
            slots.step()?;
        }
    }
    if logs.rest.is_empty() && !planted::has(Bug::BlocksAskedAnyway) {
        core.counters.ended_early.add(1);
        core.counters.slots_spared.add(blocks.end - slots.next());
        return Ok(());
    }
    if planted::has(Bug::BlocksAskedAnyway) {
        while slots.next() < blocks.end {
            slots.step()?;
        }
    }
    for (block, range) in logs.rest {
        let slot = slots.of(block)?;
        let valid = slot.block().map_or(0, |_| u64::from(slot.valid.get()));
        let seen = range.start..range.end.min(valid).max(range.start);
        let hole = seen.end..range.end;
        if let Some(device) = slot.block().filter(|_| !seen.is_empty()) {
            let source = Source::Block(device, seen.start);
            pieces.push(Piece { into: wanted.place(block, &seen), source });
        }
        if !hole.is_empty() {
            pieces.push(Piece { into: wanted.place(block, &hole), source: Source::Hole });
        }
    }
    Ok(())
}
