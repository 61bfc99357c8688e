//! Emptying frames: the one used longest ago when a page needs room, and dirty ones in the background before
//! that.

use std::sync::atomic::Ordering;

use amphi_device::{PAGE_BYTES, Result};

use crate::flash::Stream;
use crate::format::{Oob, PAGE};
use crate::page_cache::PageCache;
use crate::page_cache::frames::State;
use crate::stats::{Cause, Counter};

/// How far ahead the host's disk is asked for room, in frames.
const ROOM_STEP: u64 = 1024;
/// Frames that were used again while being emptied, one after the other, before a task lets others go first.
const TRIES: u64 = 64;

impl PageCache {
    /// Takes an empty frame, evicting the page used longest ago if there is none. Answers it and when it is
    /// empty.
    ///
    /// # Errors
    /// A dirty page cannot be written to flash, the host's disk is full, or power was lost.
    pub(crate) fn take_frame(&self) -> Result<(u32, u64)> {
        let mut tries = 0;
        loop {
            if let Some(frame) = self.frames.take() {
                if let Err(cause) = self.room_for_frame(frame) {
                    self.frames.give(frame);
                    return Err(cause);
                }
                return Ok((frame, 0));
            }
            if let Some(frame) = self.frames.oldest()
                && let Some(empty_at) = self.evict(frame)?
            {
                return Ok((frame, empty_at));
            }
            tries += 1;
            if tries % TRIES == 0 {
                // Other tasks have all the frames in hand, or use them as fast as they are found.
                amphi_rt::time::sleep_ns(1000);
            }
        }
    }

    /// Sees to it that `pages` frames are empty, as far as the cache is large enough. Answers when they are.
    ///
    /// # Errors
    /// As for [`take_frame`](Self::take_frame).
    pub(crate) fn make_room(&self, pages: u64) -> Result<u64> {
        let mut ready_at = 0;
        let wanted = pages.min(self.frames.len() / 4);
        while self.frames.empty() < wanted {
            let Some(frame) = self.frames.oldest() else { break };
            if let Some(empty_at) = self.evict(frame)? {
                self.frames.give(frame);
                ready_at = ready_at.max(empty_at);
            }
        }
        Ok(ready_at)
    }

    fn room_for_frame(&self, frame: u32) -> Result<()> {
        let needed = u64::from(frame) + 1;
        if needed <= self.frames.room.load(Ordering::Acquire) {
            return Ok(());
        }
        let _extending = self.frames.extending.lock();
        let from = self.frames.room.load(Ordering::Relaxed);
        if needed > from {
            let to = (needed + ROOM_STEP).min(self.frames.len());
            self.image.allocate(self.layout.cache_frame(from as u32), (to - from) * PAGE)?;
            self.frames.room.store(to, Ordering::Release);
        }
        Ok(())
    }

    /// Empties a frame and takes it. Answers when it is empty, or nothing if the page was used meanwhile.
    fn evict(&self, frame: u32) -> Result<Option<u64>> {
        let it = self.frames.frame(frame);
        let lpa = it.lpa();
        let mut empty_at = 0;
        if it.state() == State::Dirty {
            match self.write_back(frame, lpa)? {
                Some(admitted) => empty_at = admitted,
                None => return Ok(None),
            }
        }
        let (partition, _) = self.partition(lpa);
        let _index = partition.index.write();
        if self.frames.find(lpa) != Some(frame) || it.state() != State::Clean {
            return Ok(None);
        }
        self.frames.detach(frame);
        self.count().add(Counter::CacheEvictions, 1);
        Ok(Some(empty_at))
    }

    /// Writes a dirty frame's page to flash. Answers when the flash's write buffer has admitted it, or
    /// nothing if the page was stored to or dropped meanwhile.
    ///
    /// # Errors
    /// Flash has no room, or power was lost; the frame stays dirty.
    fn write_back(&self, frame: u32, lpa: u64) -> Result<Option<u64>> {
        let (partition, _) = self.partition(lpa);
        let it = self.frames.frame(frame);
        let is_dirty = || self.frames.find(lpa) == Some(frame) && it.state() == State::Dirty;
        let mut data = [0; PAGE_BYTES];
        let changes = {
            let _index = partition.index.read();
            if !is_dirty() {
                return Ok(None);
            }
            self.image.read(self.layout.cache_frame(frame), &mut data);
            it.changes()
        };
        let page = self.take_page(Stream::Fresh, None)?;
        let admitted = self.time_program(Cause::Host, self.timing.prepare_page(), self.blocks.die_of(page));
        self.program(page, &data)?;
        self.count().flash_write(Cause::Host, 1);
        let _index = partition.index.write();
        if !is_dirty() || it.changes() != changes {
            self.blocks.abandon(page);
            return Ok(None);
        }
        let marks = self.marks(lpa, self.mapping(lpa));
        self.publish(lpa, page, &Oob::new(lpa as u32, marks.written_at, self.tick()))?;
        self.power.step()?;
        self.clear_record(frame);
        self.frames.set_state(frame, State::Clean);
        self.count().add(Counter::CacheWriteBacks, 1);
        Ok(Some(admitted))
    }

    /// Writes dirty pages back, those used longest ago first, until an eighth fewer are dirty than may be;
    /// and again if more than may be were made dirty meanwhile.
    ///
    /// # Errors
    /// As for the pages.
    pub(crate) fn write_back_some(&self) -> Result<()> {
        let _writing_back = self.writing_back.lock();
        // Pages that are stored to faster than they are written stay dirty.
        while self.write_back_excess()? > 0 && self.frames.dirty() > self.frames.dirty_limit {}
        Ok(())
    }

    /// Writes back as many pages as are too many now. Answers how many of them are clean.
    fn write_back_excess(&self) -> Result<u64> {
        let target = self.frames.dirty_limit - self.frames.dirty_limit / 8;
        let excess = self.frames.dirty().saturating_sub(target) as usize;
        // As many pages as there are dies keep all of them busy; then the writer waits for the flash to catch
        // up.
        let dies = (self.profile.flash.channels * self.profile.flash.ways) as usize;
        let (mut admitted, mut clean) = (0, 0);
        for (count, (_, frame)) in self.frames.oldest_dirty(excess).into_iter().enumerate() {
            if let Some(at) = self.write_back(frame, self.frames.frame(frame).lpa())? {
                admitted = admitted.max(at);
                clean += 1;
            }
            if (count + 1) % dies == 0 {
                self.timing.wait(admitted);
                self.power.check()?;
            }
        }
        self.timing.wait(admitted);
        Ok(clean)
    }
}
