//! Erase blocks: which are free, which are being filled, how much of each is live, how worn each is.
//!
//! Writes are spread over *write points*, each filling its own block, on different dies where there are enough blocks. Pages of a block are
//! programmed in order and once between erases. The lasting state of a block is one word of the image (erase count, in use);
//! the rest is rebuilt from the mapping table at power-up.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use amphi_device::{Error, Result};
use amphi_rt::sync::Mutex;

use crate::Profile;
use crate::core::Core;
use crate::format::{Layout, OOB_BYTES, Oob, PAGE};
use crate::image::Image;
use crate::stats::{Cause, Wear};

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
const IN_USE: u64 = 1 << 32;
/// Blocks whose erase counts differ by less than this count as equally worn.
const WEAR_STEP: u32 = 16;

/// Erases by which the most worn block leads the least worn before the latter's data, which nobody overwrites, are moved.
const WEAR_GAP: u32 = 4 * WEAR_STEP;
/// Blocks erased between two looks at the wear of all of them.
const WEAR_EVERY: u64 = 16;

/// Order in which free blocks are taken: least worn first; among equals, those whose storage the host's disk already has.
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
    live: Box<[AtomicU32]>,
    pending: Box<[AtomicU32]>,
    has_storage: Box<[AtomicBool]>,
    pool: Mutex<Pool>,
    free: AtomicUsize,
    fresh: Box<[Mutex<WritePoint>]>,
    cold: Box<[Mutex<WritePoint>]>,
    turn: AtomicUsize,
    cold_turn: AtomicUsize,
    /// Blocks erased since power-up.
    erases: AtomicU64,
    /// Free blocks that only garbage collection may take.
    reserve: usize,
    /// Free blocks below which collection starts in the background.
    low_water: usize,
    pub(crate) collecting: Mutex<()>,
}

/// Whether a block's lasting word says that it holds, or may hold, programmed pages.
fn in_use(word: u64) -> bool {
    word & IN_USE != 0
}

impl Blocks {
    /// Rebuilds the blocks' state, given how many live pages the mapping table puts in each.
    pub(crate) fn new(image: &Image, layout: &Layout, profile: &Profile, live: Box<[AtomicU32]>) -> Self {
        let dies = (profile.flash.channels * profile.flash.ways) as u32;
        let pages_per_block = layout.pages_per_block as u32;
        let host_blocks = layout.capacity_pages.div_ceil(layout.pages_per_block);
        let spare = (layout.blocks - host_blocks) as usize;
        let fresh = (spare.saturating_sub(8) / 2).clamp(1, dies as usize);
        let cold = (spare / 16).clamp(1, 8);
        let reserve = cold + 2;
        let points =
            |count: usize| (0..count).map(|_| Mutex::new(WritePoint { block: None, next: 0 })).collect();
        let blocks = Self {
            pages_per_block,
            dies,
            state: (0..layout.blocks).map(|_| AtomicU8::new(FREE)).collect(),
            pending: (0..layout.blocks).map(|_| AtomicU32::new(0)).collect(),
            has_storage: (0..layout.blocks).map(|_| AtomicBool::new(false)).collect(),
            live,
            pool: Mutex::new(Pool {
                free: vec![BTreeSet::new(); dies as usize],
                partial: Vec::new(),
                stored: 0,
            }),
            free: AtomicUsize::new(0),
            fresh: points(fresh),
            cold: points(cold),
            turn: AtomicUsize::new(0),
            cold_turn: AtomicUsize::new(0),
            erases: AtomicU64::new(0),
            reserve,
            low_water: reserve + 2 + spare / 8,
            collecting: Mutex::new(()),
        };
        {
            let mut pool = blocks.pool.lock();
            for block in 0..layout.blocks as u32 {
                let word = image.word(layout.block_words + u64::from(block) * 8).load(Ordering::Relaxed);
                let worn = word & !IN_USE != 0 || in_use(word);
                blocks.has_storage[block as usize].store(worn, Ordering::Relaxed);
                if !in_use(word) {
                    blocks.put_free(&mut pool, block, word as u32);
                    continue;
                }
                let next = (0..layout.pages_per_block)
                    .rev()
                    .find(|page| {
                        let page = u64::from(block) * layout.pages_per_block + page;
                        let oob: Oob = image.read_struct(layout.oob_record(page));
                        oob.mark.get() != 0
                    })
                    .map_or(0, |last| last as u32 + 1);
                if next < pages_per_block {
                    blocks.state[block as usize].store(OPEN, Ordering::Relaxed);
                    pool.partial.push((block, next));
                } else {
                    blocks.state[block as usize].store(FULL, Ordering::Relaxed);
                }
            }
        }
        blocks
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

    /// The die of a flash page.
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

    /// The die that a turn of the fresh stream will most likely program.
    pub(crate) fn die_of_turn(&self, turn: usize) -> u64 {
        (turn % self.fresh.len()) as u64 * u64::from(self.dies) / self.fresh.len() as u64
    }

    /// Keeps the page's block from being erased, until [`published`](Self::published) undoes it.
    pub(crate) fn pin(&self, page: u64) {
        self.pending[self.block_of(page)].fetch_add(1, Ordering::AcqRel);
    }

    /// The page just handed out holds the current contents of a logical page.
    pub(crate) fn published(&self, page: u64) {
        self.pending[self.block_of(page)].fetch_sub(1, Ordering::AcqRel);
    }

    /// The page just handed out will not be used.
    pub(crate) fn abandon(&self, page: u64) {
        self.invalidate(page);
        self.published(page);
    }

    /// The page's contents are no longer current.
    pub(crate) fn invalidate(&self, page: u64) {
        self.live[self.block_of(page)].fetch_sub(1, Ordering::AcqRel);
    }

    /// Free blocks.
    pub(crate) fn free(&self) -> usize {
        self.free.load(Ordering::Relaxed)
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

    /// The full block with the fewest live pages, if it has any that are not.
    pub(crate) fn victim(&self) -> Option<u64> {
        let mut best = None;
        let mut fewest = self.pages_per_block;
        for (block, live) in self.live.iter().enumerate() {
            let live = live.load(Ordering::Relaxed);
            if live < fewest
                && self.state[block].load(Ordering::Relaxed) == FULL
                && self.pending[block].load(Ordering::Acquire) == 0
            {
                fewest = live;
                best = Some(block as u64);
                if live == 0 {
                    break;
                }
            }
        }
        best
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
        self.live[block as usize].load(Ordering::Acquire)
    }

    fn take_free(&self, point: usize, points: usize, stream: Stream) -> Option<(u32, u32)> {
        // When free blocks are few, the partial ones too are for collection: each cut while it runs leaves one, and if fresh data
        // filled those, a few cuts would use its reserve up.
        if stream == Stream::Fresh && !self.has_spare() {
            return None;
        }
        let mut pool = self.pool.lock();
        if let Some(partial) = pool.partial.pop() {
            return Some(partial);
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

impl Core {
    fn block_word(&self, block: u32) -> &AtomicU64 {
        self.image.word(self.layout.block_words + u64::from(block) * 8)
    }

    /// Hands out the next page to program. `turn` chooses among the write points.
    ///
    /// # Errors
    /// No free block is left, even after collecting; or the host's disk is full.
    pub(crate) fn take_page(&self, stream: Stream, turn: Option<usize>) -> Result<u64> {
        let blocks = &self.blocks;
        let (points, turns) = match stream {
            Stream::Fresh => (&blocks.fresh, &blocks.turn),
            Stream::Cold => (&blocks.cold, &blocks.cold_turn),
        };
        let at = turn.unwrap_or_else(|| turns.fetch_add(1, Ordering::Relaxed)) % points.len();
        let mut point = points[at].lock();
        let block = match point.block {
            Some(block) => block,
            None => {
                let (block, next) = self.open_block(at, points.len(), stream)?;
                point.next = next;
                *point.block.insert(block)
            }
        };
        let page = u64::from(block) * self.layout.pages_per_block + u64::from(point.next);
        blocks.live[block as usize].fetch_add(1, Ordering::AcqRel);
        blocks.pending[block as usize].fetch_add(1, Ordering::AcqRel);
        point.next += 1;
        if point.next == blocks.pages_per_block {
            blocks.state[block as usize].store(FULL, Ordering::Release);
            point.block = None;
        }
        Ok(page)
    }

    fn open_block(&self, point: usize, points: usize, stream: Stream) -> Result<(u32, u32)> {
        let blocks = &self.blocks;
        let (block, next) = loop {
            if let Some(taken) = blocks.take_free(point, points, stream) {
                break taken;
            }
            if stream == Stream::Cold || !self.collect_now()? {
                // Nothing can be collected: the blank pages of a partial block are what is left.
                if let Some(partial) = blocks.pool.lock().partial.pop() {
                    break partial;
                }
                return Err(Error::NoSpace("every flash block is full of live pages; trim some".to_owned()));
            }
        };
        if stream == Stream::Fresh && blocks.is_low() {
            self.ring_collector();
        }
        let first = u64::from(block) * self.layout.pages_per_block;
        let pages = self.layout.pages_per_block;
        let room = self
            .image
            .allocate(self.layout.flash_page(first), pages * PAGE)
            .and_then(|()| self.image.allocate(self.layout.oob_record(first), pages * OOB_BYTES))
            .and_then(|()| self.power.step());
        if let Err(cause) = room {
            let mut pool = blocks.pool.lock();
            if next == 0 {
                let erases = self.block_word(block).load(Ordering::Relaxed) as u32;
                blocks.put_free(&mut pool, block, erases);
            } else {
                pool.partial.push((block, next));
            }
            return Err(cause);
        }
        self.block_word(block).fetch_or(IN_USE, Ordering::AcqRel);
        blocks.has_storage[block as usize].store(true, Ordering::Relaxed);
        blocks.state[block as usize].store(OPEN, Ordering::Relaxed);
        Ok((block, next))
    }

    /// Erases a full block without live pages and returns it to the pool.
    ///
    /// # Errors
    /// Power was lost.
    pub(crate) fn erase(&self, block: u64) -> Result<()> {
        let first = block * self.layout.pages_per_block;
        self.power.step()?;
        self.image.zero(self.layout.oob_record(first), (self.layout.pages_per_block * OOB_BYTES) as usize);
        self.power.step()?;
        let word = self.block_word(block as u32);
        let erases = (word.load(Ordering::Relaxed) as u32).saturating_add(1);
        word.store(u64::from(erases), Ordering::Release);
        self.time_erase(Cause::GarbageCollection, self.timing.now(), self.blocks.die_of(first));
        let mut pool = self.blocks.pool.lock();
        // A few erased blocks keep their storage, so that steady overwriting does not allocate; more would be the host's disk wasted.
        let keep = 64 + self.layout.blocks as usize / 64;
        if pool.stored > keep && !self.image.is_in_memory() {
            self.image.discard(self.layout.flash_page(first), self.layout.pages_per_block * PAGE);
            self.blocks.has_storage[block as usize].store(false, Ordering::Relaxed);
        }
        self.blocks.put_free(&mut pool, block as u32, erases);
        Ok(())
    }

    /// Static wear levelling: now and then, the full block with the fewest erases if it lags far behind the most worn. Its data are cold; once
    /// moved, the block takes its share of the wear.
    pub(crate) fn laggard(&self) -> Option<u64> {
        if !self.blocks.erases.fetch_add(1, Ordering::Relaxed).is_multiple_of(WEAR_EVERY) {
            return None;
        }
        let most = self.wear().max;
        let full = |block: &u32| {
            self.blocks.state[*block as usize].load(Ordering::Relaxed) == FULL
                && self.blocks.pending[*block as usize].load(Ordering::Acquire) == 0
        };
        (0..self.layout.blocks as u32)
            .filter(full)
            .map(|block| (self.block_word(block).load(Ordering::Relaxed) as u32, block))
            .min()
            .filter(|&(fewest, _)| most - fewest.min(most) > WEAR_GAP)
            .map(|(_, block)| u64::from(block))
    }

    /// How often blocks were erased.
    pub(crate) fn wear(&self) -> Wear {
        let blocks = 0..self.layout.blocks as u32;
        Wear::of(blocks.map(|block| self.block_word(block).load(Ordering::Relaxed) as u32))
    }
}
