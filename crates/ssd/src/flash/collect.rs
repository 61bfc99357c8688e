//! Garbage collection: empties the block that the profile's policy chooses (greedy or cost-benefit), so that
//! it can be erased; blocks that were retired; and now and then, to level the wear, the block that was erased
//! least.
//!
//! It runs in the background when free blocks run low, and in the foreground when a write finds none.

use amphi_device::Result;

use crate::flash::Stream;
use crate::format::{Mapping, Oob, PAGE, control};
use crate::media::Media;
use crate::planted::{self, Bug};
use crate::stats::{Activity, Cause, Counter};

impl Media {
    /// Wakes the background collector.
    pub(crate) fn ring_collector(&self) {
        let Some(media) = self.itself.upgrade() else { return };
        self.collect_bell.ring(|| {
            amphi_rt::task::spawn("ssd-collector", move || {
                media.collect_bell.serve(|| media.collect_round());
            })
        });
    }

    /// Whether a round of the background collector would find something to do.
    pub(crate) fn is_collection_due(&self) -> bool {
        !self.blocks.is_relaxed() || self.blocks.next_retired().is_some()
    }

    /// One round of the background collector: empties retired blocks, then others until there is room enough.
    ///
    /// # Errors
    /// As for the page moves.
    pub(crate) fn collect_round(&self) -> Result<()> {
        let _collecting = self.blocks.collecting.lock();
        while let Some(retired) = self.blocks.next_retired() {
            self.empty(retired)?;
        }
        while !self.blocks.is_relaxed() && self.collect_one()? {}
        Ok(())
    }

    /// Collects until a host write can take a block. Answers whether it can.
    ///
    /// # Errors
    /// As for the page moves.
    pub(crate) fn collect_now(&self) -> Result<bool> {
        let _collecting = self.blocks.collecting.lock();
        self.count().add(Counter::ForegroundGc, 1);
        let _waiting = self.meters.begin(Activity::NoFreeBlock);
        while !self.blocks.has_spare() {
            // Unflushed writes keep blocks from being erased; flushing them is the device's to do at any
            // time.
            if !self.collect_one()? && self.flush_cache() == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Empties and erases one block. Answers whether there was one worth it.
    fn collect_one(&self) -> Result<bool> {
        let now = self.image.word(control!(clock)).load(std::sync::atomic::Ordering::Relaxed);
        let age = |block: u64| {
            let opened_at = self.image.word(self.layout.block_header(block) + 8);
            now.saturating_sub(opened_at.load(std::sync::atomic::Ordering::Relaxed))
        };
        let Some(victim) = self.blocks.victim(self.profile.media.gc, age) else { return Ok(false) };
        self.empty(victim)?;
        // A full block costs a whole block of moves; there is room for that once another was emptied.
        if self.blocks.has_spare()
            && let Some(laggard) = self.laggard()
        {
            self.empty(laggard)?;
        }
        Ok(true)
    }

    /// Moves a block's live pages elsewhere and erases it.
    fn empty(&self, block: u64) -> Result<()> {
        let _collecting = self.meters.begin(Activity::GarbageCollection);
        let first = block * self.layout.pages_per_block;
        for page in first..first + self.layout.pages_per_block {
            if self.blocks.live_pages(block) == 0 {
                break;
            }
            self.move_page(page)?;
        }
        // A mapping that shows two logical pages in one flash page, which only a damaged image has, leaves a
        // count behind.
        if self.blocks.live_pages(block) > 0 {
            self.blocks.set_aside(block);
            return Ok(());
        }
        if self.blocks.is_pending(block) {
            // Meanwhile the host has replaced a page here by one that a power cut may still revert.
            return Ok(());
        }
        self.count().add(Counter::GcRuns, 1);
        if self.blocks.is_retired(block) {
            self.mark_bad(block as u32, false)?;
            self.blocks.set_bad(block);
            return Ok(());
        }
        self.erase(block)?;
        self.count().add(Counter::BlocksErased, 1);
        Ok(())
    }

    /// Moves a flash page's contents elsewhere if they are current.
    fn move_page(&self, page: u64) -> Result<()> {
        let lpa = u64::from(self.oob(page).lpa.get());
        let current = Mapping::At(page);
        if lpa >= self.layout.capacity_pages || self.mapping(lpa) != current {
            return Ok(());
        }
        let to = self.take_page(Stream::Cold, None)?;
        let now = self.timing.now();
        let read = self.time_page_read(Cause::GarbageCollection, now, page);
        self.time_program(Cause::GarbageCollection, read, self.blocks.die_of(to));
        self.count().flash_read(Cause::GarbageCollection, 1);
        self.count().flash_write(Cause::GarbageCollection, 1);
        if let Err(lost) = self.power.step() {
            self.blocks.abandon(to);
            return Err(lost);
        }
        self.image.copy(self.layout.flash_page(page), self.layout.flash_page(to), PAGE as usize);
        let (partition, _) = self.partition(lpa);
        let index = partition.index.write();
        if self.mapping(lpa) == current {
            let oob: Oob = self.oob(page);
            // What cannot be read cannot be moved, but whose it was can be kept.
            let moved = if self.is_correctable(page, &oob) { oob.moved() } else { oob.unreadable().moved() };
            if planted::has(Bug::CopyVoidedEarly) {
                self.image.write_struct(self.layout.oob_record(page), &Oob::spent());
            }
            self.publish(lpa, to, &moved)?;
        } else {
            self.image.write_struct(self.layout.oob_record(to), &Oob::spent());
            self.blocks.abandon(to);
        }
        drop(index);
        Ok(())
    }
}
