//! Erase blocks: which are free, which are being filled, how much of each is live, how worn each is.
//!
//! Writes are spread over *write points*, each filling its own block, on different dies where there are
//! enough blocks. Pages of a block are programmed in order and once between erases. The lasting state of a
//! block is its header (erase count, in use, when it was opened); the rest is rebuilt at power-up.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};

use amphi_rt::sync::{Mutex, Padded};

mod counts;
mod handing_out;

use counts::Counts;

use crate::Profile;
use crate::flash::media::GcPolicy;
use crate::format::{BlockHeader, Layout, Oob};
use crate::image::Image;

/// What a page is programmed for. Streams fill different blocks, so that long-lived pages gather.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    /// Fresh data: the host's and log cleaning's.
    Fresh,
    /// Data that garbage collection moves.
    Cold,
}

const FREE: u8 = 0;
const OPEN: u8 = 1;
const FULL: u8 = 2;
const ASIDE: u8 = 3;
/// Holds pages of a mapping checkpoint.
const MAPPING: u8 = 4;
/// Failed to program: to be emptied, then bad.
const RETIRED: u8 = 5;
/// Not to be used.
const BAD: u8 = 6;
/// Blocks whose erase counts differ by less than this count as equally worn.
const WEAR_STEP: u32 = 16;

/// Order in which free blocks are taken: least worn first; among equals, those whose storage the host's disk
/// already has.
type FreeKey = (u32, bool, u32, u32);

#[derive(Debug)]
struct Pool {
    /// Per die.
    free: Vec<BTreeSet<FreeKey>>,
    /// Partly programmed blocks found at power-up, and the next page of each.
    partial: Vec<(u32, u32)>,
    /// Free blocks that still hold storage on the host's disk.
    stored: usize,
}

#[derive(Debug)]
struct WritePoint {
    block: Option<u32>,
    next: u32,
}

/// All erase blocks.
#[derive(Debug)]
pub(crate) struct Blocks {
    pages_per_block: u32,
    dies: u32,
    state: Box<[AtomicU8]>,
    counts: Counts,
    has_storage: Box<[AtomicBool]>,
    pool: Mutex<Pool>,
    free: AtomicUsize,
    fresh: Box<[Padded<Mutex<WritePoint>>]>,
    cold: Box<[Padded<Mutex<WritePoint>>]>,
    turn: Padded<AtomicUsize>,
    cold_turn: Padded<AtomicUsize>,
    /// Blocks erased since power-up.
    erases: AtomicU64,
    /// Retired blocks that are not empty yet.
    retired: AtomicUsize,
    /// Blocks opened since the last mapping checkpoint began.
    opened: AtomicU64,
    programmed: AtomicBool,
    /// Blocks that mapping checkpoints may hold, and those they do hold. The rest of their share is nobody
    /// else's.
    mapping_share: usize,
    mapping_held: AtomicUsize,
    /// Free blocks that only garbage collection may take.
    reserve: usize,
    /// Free blocks below which collection starts in the background.
    low_water: usize,
    pub(crate) collecting: Mutex<()>,
}

impl Blocks {
    /// Rebuilds the blocks' state, given how many live pages the mapping table puts in each.
    pub(crate) fn new(image: &Image, layout: &Layout, profile: &Profile, live: &[u32]) -> Self {
        let dies = (profile.flash.channels * profile.flash.ways * profile.media.planes) as u32;
        let pages_per_block = layout.pages_per_block as u32;
        let host_blocks = layout.capacity_pages.div_ceil(layout.pages_per_block);
        let mapping_share = Layout::mapping_blocks(layout.pages_per_block, layout.capacity_pages) as usize;
        let is_bad = |block: &u64| {
            BlockHeader::from_word(image.word(layout.block_header(*block)).load(Ordering::Relaxed)).bad
        };
        let bad = (0..layout.blocks).filter(is_bad).count();
        let spare = ((layout.blocks - host_blocks) as usize).saturating_sub(mapping_share + bad);
        let fresh = (spare.saturating_sub(8) / 2).clamp(1, dies as usize);
        let cold = (spare / 16).clamp(1, 8);
        let reserve = cold + 2;
        let points = |count: usize| {
            (0..count).map(|_| Padded(Mutex::new(WritePoint { block: None, next: 0 }))).collect()
        };
        let blocks = Self {
            pages_per_block,
            dies,
            state: (0..layout.blocks).map(|_| AtomicU8::new(FREE)).collect(),
            counts: Counts::new(live, dies as usize),
            has_storage: (0..layout.blocks).map(|_| AtomicBool::new(false)).collect(),
            pool: Mutex::new(Pool {
                free: vec![BTreeSet::new(); dies as usize],
                partial: Vec::new(),
                stored: 0,
            }),
            free: AtomicUsize::new(0),
            fresh: points(fresh),
            cold: points(cold),
            turn: Padded(AtomicUsize::new(0)),
            cold_turn: Padded(AtomicUsize::new(0)),
            erases: AtomicU64::new(0),
            retired: AtomicUsize::new(0),
            opened: AtomicU64::new(0),
            programmed: AtomicBool::new(false),
            mapping_share,
            mapping_held: AtomicUsize::new(0),
            reserve,
            low_water: reserve + 2 + spare / 8,
            collecting: Mutex::new(()),
        };
        {
            let mut pool = blocks.pool.lock();
            let mut free = vec![Vec::new(); dies as usize];
            for block in 0..layout.blocks as u32 {
                if let Some(key) = blocks.find(image, layout, &mut pool, block) {
                    pool.stored += usize::from(!key.1);
                    free[blocks.die(block) as usize].push(key);
                }
            }
            blocks.free.store(free.iter().map(Vec::len).sum(), Ordering::Relaxed);
            // A set made of all at once is made much faster than one by one.
            pool.free = free.into_iter().map(BTreeSet::from_iter).collect();
        }
        blocks
    }

    /// Finds out the state of one block at power-up: its place among the free ones if it is free.
    fn find(&self, image: &Image, layout: &Layout, pool: &mut Pool, block: u32) -> Option<FreeKey> {
        let number = u64::from(block);
        let header = BlockHeader::from_word(image.word(layout.block_header(number)).load(Ordering::Relaxed));
        let stored = header.erases > 0 || header.in_use;
        self.has_storage[block as usize].store(stored, Ordering::Relaxed);
        let state = &self.state[block as usize];
        if header.in_use && header.mapping {
            state.store(MAPPING, Ordering::Relaxed);
            self.mapping_held.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        if header.bad {
            if header.in_use {
                self.retire(block);
            } else {
                state.store(BAD, Ordering::Relaxed);
            }
            return None;
        }
        if !header.in_use {
            state.store(FREE, Ordering::Relaxed);
            return Some((header.erases / WEAR_STEP, !stored, header.erases, block));
        }
        let first = number * layout.pages_per_block;
        let programmed = |page: &u64| {
            let oob: Oob = image.read_struct(layout.oob_record(first + page));
            oob.mark.get() != 0
        };
        let next = (0..layout.pages_per_block).rev().find(programmed).map_or(0, |last| last as u32 + 1);
        if next < self.pages_per_block {
            state.store(OPEN, Ordering::Relaxed);
            pool.partial.push((block, next));
        } else {
            state.store(FULL, Ordering::Relaxed);
        }
        None
    }

    fn put_free(&self, pool: &mut Pool, block: u32, erases: u32) {
        let stored = self.has_storage[block as usize].load(Ordering::Relaxed);
        self.state[block as usize].store(FREE, Ordering::Relaxed);
        pool.free[self.die(block) as usize].insert((erases / WEAR_STEP, !stored, erases, block));
        pool.stored += usize::from(stored);
        self.free.fetch_add(1, Ordering::Relaxed);
    }

    fn die(&self, block: u32) -> u32 {
        block % self.dies
    }

    /// The plane of a flash page, counted through all dies; with one plane, its die.
    pub(crate) fn die_of(&self, page: u64) -> u64 {
        u64::from(self.die((page / u64::from(self.pages_per_block)) as u32))
    }

    fn block_of(&self, page: u64) -> usize {
        (page / u64::from(self.pages_per_block)) as usize
    }

    /// Takes the next `pages` turns of the fresh stream; page i of the command goes to turn + i.
    pub(crate) fn take_turns(&self, pages: usize) -> usize {
        self.turn.fetch_add(pages, Ordering::Relaxed)
    }

    /// The plane that a turn of the fresh stream will most likely program.
    pub(crate) fn die_of_turn(&self, turn: usize) -> u64 {
        (turn % self.fresh.len()) as u64 * u64::from(self.dies) / self.fresh.len() as u64
    }

    /// Keeps the page's block from being erased, until [`published`](Self::published) undoes it.
    pub(crate) fn pin(&self, page: u64) {
        self.counts.pin(self.block_of(page));
    }

    /// The page just handed out holds the current contents of a logical page.
    pub(crate) fn published(&self, page: u64) {
        self.counts.settle(self.block_of(page));
    }

    /// The page just handed out will not be used.
    pub(crate) fn abandon(&self, page: u64) {
        self.counts.abandon(self.block_of(page));
    }

    /// The page's contents are no longer current.
    pub(crate) fn invalidate(&self, page: u64) {
        self.counts.invalidate(self.block_of(page));
    }

    /// Free blocks that data may take.
    fn free(&self) -> usize {
        let kept = self.mapping_share.saturating_sub(self.mapping_held.load(Ordering::Relaxed));
        self.free.load(Ordering::Relaxed).saturating_sub(kept)
    }

    /// Blocks opened since the last mapping checkpoint began.
    pub(crate) fn opened_since_checkpoint(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// A mapping checkpoint begins.
    pub(crate) fn forget_opened(&self) {
        self.opened.store(0, Ordering::Relaxed);
        self.programmed.store(false, Ordering::Relaxed);
    }

    /// Whether a page was handed out since power-up or the last checkpoint.
    pub(crate) fn was_programmed(&self) -> bool {
        self.programmed.load(Ordering::Relaxed)
    }

    /// Blocks in which a page may still become current without a later opening: those that are being filled,
    /// or hold a page that was handed out. The state is read before the count, which is raised before a block
    /// counts as full.
    pub(crate) fn unsettled(&self) -> Vec<u32> {
        let unsettled = |block: &u32| {
            self.state[*block as usize].load(Ordering::Acquire) == OPEN
                || self.counts.is_pending(*block as usize)
        };
        (0..self.state.len() as u32).filter(unsettled).collect()
    }

    /// Takes a free block for a mapping checkpoint, from the die that has most of them.
    pub(crate) fn take_for_mapping(&self) -> Option<u32> {
        let mut pool = self.pool.lock();
        let die = (0..pool.free.len()).max_by_key(|&die| pool.free[die].len())?;
        let (_, fresh, _, block) = pool.free[die].pop_first()?;
        pool.stored -= usize::from(!fresh);
        self.free.fetch_sub(1, Ordering::Relaxed);
        self.mapping_held.fetch_add(1, Ordering::Relaxed);
        Some(block)
    }

    /// A block taken for a mapping checkpoint is free again.
    pub(crate) fn mapping_block_returned(&self) {
        self.mapping_held.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether background collection should run.
    pub(crate) fn is_low(&self) -> bool {
        self.free() <= self.low_water
    }

    /// Whether collection has made enough room.
    pub(crate) fn is_relaxed(&self) -> bool {
        self.free() > self.low_water + 1
    }

    /// Whether a host write may take a free block.
    pub(crate) fn has_spare(&self) -> bool {
        self.free() > self.reserve
    }

    /// The full block to empty next, by the policy, if any has pages that are not live. `age` says how long
    /// ago a block was opened.
    pub(crate) fn victim(&self, policy: GcPolicy, age: impl Fn(u64) -> u64) -> Option<u64> {
        let mut best = None;
        let mut most = 0.0;
        for (block, state) in self.state.iter().enumerate() {
            if state.load(Ordering::Relaxed) != FULL {
                continue;
            }
            let Some(live) = self.counts.settled_live(block) else { continue };
            if live >= self.pages_per_block {
                continue;
            }
            if live == 0 {
                return Some(block as u64);
            }
            let free = f64::from(self.pages_per_block - live);
            let worth = match policy {
                GcPolicy::Greedy => free,
                GcPolicy::CostBenefit => free / f64::from(2 * live) * age(block as u64).max(1) as f64,
            };
            if worth > most {
                most = worth;
                best = Some(block as u64);
            }
        }
        best
    }

    /// Takes a block that failed to program out of use.
    pub(crate) fn retire(&self, block: u32) {
        self.state[block as usize].store(RETIRED, Ordering::Release);
        self.retired.fetch_add(1, Ordering::Release);
    }

    /// Whether a block was retired.
    pub(crate) fn is_retired(&self, block: u64) -> bool {
        self.state[block as usize].load(Ordering::Acquire) == RETIRED
    }

    /// Whether pages of a block are not current yet, or it is pinned.
    pub(crate) fn is_pending(&self, block: u64) -> bool {
        self.counts.is_pending(block as usize)
    }

    /// A retired block that can be emptied now.
    pub(crate) fn next_retired(&self) -> Option<u64> {
        if self.retired.load(Ordering::Acquire) == 0 {
            return None;
        }
        let ready = |block: &u64| self.is_retired(*block) && !self.is_pending(*block);
        (0..self.state.len() as u64).find(ready)
    }

    /// A retired block is empty, or a block failed to erase.
    pub(crate) fn set_bad(&self, block: u64) {
        if self.state[block as usize].swap(BAD, Ordering::AcqRel) == RETIRED {
            self.retired.fetch_sub(1, Ordering::Release);
        }
    }

    /// Blocks that are bad or about to be.
    pub(crate) fn bad(&self) -> u64 {
        let bad = |state: &&AtomicU8| matches!(state.load(Ordering::Relaxed), RETIRED | BAD);
        self.state.iter().filter(bad).count() as u64
    }

    /// Whether a block is erased.
    pub(crate) fn is_erased(&self, block: u64) -> bool {
        self.state[block as usize].load(Ordering::Relaxed) == FREE
    }

    /// Takes a full block out of collection for good.
    pub(crate) fn set_aside(&self, block: u64) {
        self.state[block as usize].store(ASIDE, Ordering::Relaxed);
    }

    /// Live pages of a block.
    pub(crate) fn live_pages(&self, block: u64) -> u32 {
        self.counts.live(block as usize)
    }

    fn take_free(&self, point: usize, points: usize, stream: Stream) -> Option<(u32, u32)> {
        // When free blocks are few, the partial ones too are for collection: each cut while it runs leaves
        // one, and if fresh data filled those, a few cuts would use its reserve up.
        if stream == Stream::Fresh && !self.has_spare() {
            return None;
        }
        let mut pool = self.pool.lock();
        if let Some(partial) = pool.partial.pop() {
            return Some(partial);
        }
        if self.free() == 0 {
            return None;
        }
        let preferred = point * self.dies as usize / points;
        let die = if pool.free[preferred].is_empty() {
            (0..pool.free.len()).max_by_key(|&die| pool.free[die].len())?
        } else {
            preferred
        };
        let free = &mut pool.free[die];
        let key = match stream {
            Stream::Fresh => *free.first()?,
            // Data that stay belong in the most worn blocks.
            Stream::Cold => {
                let most = free.last()?.0;
                *free.range((most, false, 0, 0)..).next()?
            }
        };
        free.remove(&key);
        let (_, fresh, _, block) = key;
        pool.stored -= usize::from(!fresh);
        self.free.fetch_sub(1, Ordering::Relaxed);
        Some((block, 0))
    }
}
