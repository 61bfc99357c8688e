//! Handing out pages to program: from write points, which open erased blocks; erasing blocks; and what the
//! wear of all of them asks for.

use std::sync::atomic::{AtomicU64, Ordering};

use amphi_device::{Error, Result};

use super::{FULL, MAPPING, OPEN, Stream, WEAR_STEP};
use crate::format::{BlockHeader, OOB_BYTES, PAGE};
use crate::media::Media;
use crate::stats::{Cause, Counter, Wear};

/// Erases by which the most worn block leads the least worn before the latter's data, which nobody
/// overwrites, are moved.
const WEAR_GAP: u32 = 4 * WEAR_STEP;
/// Blocks erased between two looks at the wear of all of them.
const WEAR_EVERY: u64 = 16;

impl Media {
    fn block_word(&self, block: u32) -> &AtomicU64 {
        self.image.word(self.layout.block_header(u64::from(block)))
    }

    pub(crate) fn block_header(&self, block: u32) -> BlockHeader {
        BlockHeader::from_word(self.block_word(block).load(Ordering::Relaxed))
    }

    /// Hands out the next page to program. `turn` chooses among the write points.
    ///
    /// # Errors
    /// No free block is left, even after collecting; the host's disk is full; or power was lost.
    pub(crate) fn take_page(&self, stream: Stream, turn: Option<usize>) -> Result<u64> {
        let blocks = &self.blocks;
        let (points, turns) = match stream {
            Stream::Fresh => (&blocks.fresh, &blocks.turn),
            Stream::Cold => (&blocks.cold, &blocks.cold_turn),
        };
        let at = turn.unwrap_or_else(|| turns.fetch_add(1, Ordering::Relaxed)) % points.len();
        let mut point = points[at].lock();
        if !blocks.programmed.load(Ordering::Relaxed) {
            blocks.programmed.store(true, Ordering::Relaxed);
        }
        loop {
            let block = match point.block {
                Some(block) => block,
                None => {
                    let (block, next) = self.open_block(at, points.len(), stream)?;
                    point.next = next;
                    *point.block.insert(block)
                }
            };
            let page = u64::from(block) * self.layout.pages_per_block + u64::from(point.next);
            if !self.can_program(page)? {
                point.block = None;
                continue;
            }
            blocks.counts.hand_out(block as usize);
            point.next += 1;
            if point.next == blocks.pages_per_block {
                blocks.state[block as usize].store(FULL, Ordering::Release);
                point.block = None;
            }
            return Ok(page);
        }
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
                return Err(Error::NoSpace(
                    "every good flash block is full of live pages; trim some".to_owned(),
                ));
            }
        };
        if stream == Stream::Fresh && blocks.is_low() {
            self.ring_collector();
        }
        if next > 0 {
            // Found half programmed at power-up: it has everything but the record of its storage's room.
            self.reserve_storage(block).inspect_err(|_| blocks.pool.lock().partial.push((block, next)))?;
            return Ok((block, next));
        }
        self.prepare_block(block, false).inspect_err(|_| self.return_block(block))?;
        blocks.opened.fetch_add(1, Ordering::Relaxed);
        if self.is_checkpoint_due() {
            self.ring_checkpointer();
        }
        Ok((block, next))
    }

    /// Makes sure that storing to a block cannot fault.
    fn reserve_storage(&self, block: u32) -> Result<()> {
        let first = u64::from(block) * self.layout.pages_per_block;
        let pages = self.layout.pages_per_block;
        self.image
            .allocate(self.layout.flash_page(first), pages * PAGE)
            .and_then(|()| self.image.allocate(self.layout.oob_record(first), pages * OOB_BYTES))
    }

    /// Opens an erased block: gives it storage, and its header.
    ///
    /// # Errors
    /// The host's disk is full, or power was lost.
    pub(crate) fn prepare_block(&self, block: u32, mapping: bool) -> Result<()> {
        self.reserve_storage(block)?;
        self.power.step()?;
        let state = if mapping { MAPPING } else { OPEN };
        // Before the number is drawn: a checkpoint that begins later sees the block being filled, one that
        // began before has a lower number.
        self.blocks.state[block as usize].store(state, Ordering::Release);
        let header = self.layout.block_header(u64::from(block));
        self.image.word(header + 8).store(self.tick(), Ordering::Release);
        let opened = BlockHeader { in_use: true, mapping, ..self.block_header(block) };
        self.image.word(header).store(opened.word(), Ordering::Release);
        self.blocks.has_storage[block as usize].store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Returns a block that was taken and could not be opened.
    pub(crate) fn return_block(&self, block: u32) {
        let erases = self.block_header(block).erases;
        self.blocks.put_free(&mut self.blocks.pool.lock(), block, erases);
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
        let header = self.block_header(block as u32);
        let fails = self.profile.media.fails_to_erase(block, header.erases);
        self.count().add(Counter::EraseFailures, u64::from(fails));
        if fails || header.bad {
            self.mark_bad(block as u32, false)?;
            self.blocks.set_bad(block);
            return Ok(());
        }
        let erases = header.erases.saturating_add(1);
        let erased = BlockHeader { erases, in_use: false, mapping: false, bad: false };
        self.block_word(block as u32).store(erased.word(), Ordering::Release);
        let cause = if header.mapping { Cause::Mapping } else { Cause::GarbageCollection };
        self.time_erase(cause, self.timing.now(), self.blocks.die_of(first));
        let mut pool = self.blocks.pool.lock();
        // A few erased blocks keep their storage, so that steady overwriting does not allocate; more would be
        // the host's disk wasted.
        let keep = 64 + self.layout.blocks as usize / 64;
        if pool.stored > keep && !self.image.is_in_memory() {
            self.image.discard(self.layout.flash_page(first), self.layout.pages_per_block * PAGE);
            self.blocks.has_storage[block as usize].store(false, Ordering::Relaxed);
        }
        self.blocks.put_free(&mut pool, block as u32, erases);
        Ok(())
    }

    /// Static wear levelling: now and then, the full block with the fewest erases if it lags far behind the
    /// most worn. Its data are cold; once moved, the block takes its share of the wear.
    pub(crate) fn laggard(&self) -> Option<u64> {
        if !self.blocks.erases.fetch_add(1, Ordering::Relaxed).is_multiple_of(WEAR_EVERY) {
            return None;
        }
        let most = self.wear().max;
        let full = |block: &u32| {
            self.blocks.state[*block as usize].load(Ordering::Relaxed) == FULL
                && !self.blocks.counts.is_pending(*block as usize)
        };
        (0..self.layout.blocks as u32)
            .filter(full)
            .map(|block| (self.block_header(block).erases, block))
            .min()
            .filter(|&(fewest, _)| most - fewest.min(most) > WEAR_GAP)
            .map(|(_, block)| u64::from(block))
    }

    /// How often blocks were erased.
    pub(crate) fn wear(&self) -> Wear {
        Wear::of((0..self.layout.blocks as u32).map(|block| self.block_header(block).erases))
    }
}
