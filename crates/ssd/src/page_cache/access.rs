//! Byte and block accesses through the page cache.

use std::sync::atomic::Ordering;

use amphi_device::{PAGE_BYTES, Result};

use crate::format::{CacheRecord, Mapping, PAGE};
use crate::media::Partition;
use crate::page_cache::PageCache;
use crate::page_cache::frames::State;
use crate::stats::{Cause, Counter, Path};
use crate::store::Store;

/// When flash begins to read a page that is not cached.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FlashRead {
    /// When it turns out to be needed.
    Now,
    /// At this moment, ns.
    From(u64),
    /// A command has booked its time.
    Booked,
}

impl PageCache {
    /// Brings a page into the cache and answers its frame's number, with the page's partition locked for
    /// writing by `then`.
    ///
    /// With `whole`, the caller replaces all of the page, and flash is not read.
    ///
    /// # Errors
    /// The flash page cannot be read, no frame can be emptied, or power was lost.
    pub(crate) fn with_cached<T>(
        &self,
        lpa: u64,
        (whole, flash): (bool, FlashRead),
        then: impl FnOnce(&Partition, u32) -> Result<T>,
    ) -> Result<(T, u64)> {
        let (partition, _) = self.partition(lpa);
        let mut hand = None;
        let outcome = loop {
            let index = partition.index.write();
            if let Some(frame) = self.frames.find(lpa) {
                self.frames.touch(frame);
                let ready_at = self.frames.frame(frame).ready_at();
                if hand.is_none() {
                    self.count().add(Counter::CacheHits, 1);
                }
                break then(partition, frame).map(|answer| (answer, ready_at));
            }
            let Some((frame, mut ready_at)) = hand.take() else {
                drop(index);
                hand = Some(self.take_frame()?);
                continue;
            };
            self.count().add(Counter::CacheMisses, 1);
            let mut page = [0; PAGE_BYTES];
            if !whole {
                if let Err(cause) = self.read_flash(lpa, 0, &mut page) {
                    self.frames.give(frame);
                    break Err(cause);
                }
                if let Mapping::At(at) = self.mapping(lpa) {
                    self.count().flash_read(Cause::Host, 1);
                    let from = match flash {
                        _ if self.timing.is_free() => None,
                        FlashRead::Now => Some(self.timing.now()),
                        FlashRead::From(from) => Some(from),
                        FlashRead::Booked => None,
                    };
                    if let Some(from) = from {
                        let read = self.time_page_read(Cause::Host, from, at);
                        ready_at = ready_at.max(self.timing.fill(read, 1));
                    }
                }
                self.image.write(self.layout.cache_frame(frame), &page);
            }
            self.frames.attach(frame, lpa, ready_at);
            let answer = then(partition, frame);
            if whole && answer.is_err() {
                // It holds what another page had, which parts of the write that still arrive must not show.
                self.frames.detach(frame);
                self.frames.give(frame);
            }
            break answer.map(|answer| (answer, ready_at));
        };
        if let Some((frame, _)) = hand {
            // Another task brought the page in meanwhile.
            self.frames.give(frame);
        }
        outcome
    }

    /// Makes a frame's record say that it holds the newest contents of its page. Called with the partition's
    /// write lock held.
    ///
    /// # Errors
    /// Power was lost.
    pub(crate) fn make_dirty(&self, frame: u32, lpa: u64) -> Result<()> {
        self.power.step()?;
        self.frames.frame(frame).changed();
        if self.frames.frame(frame).state() != State::Dirty {
            self.record(frame, lpa);
        }
        Ok(())
    }

    fn record(&self, frame: u32, lpa: u64) {
        let record = self.layout.cache_record(frame);
        self.image.word(record + CacheRecord::SEQ).store(self.tick(), Ordering::Release);
        self.image.word(record + CacheRecord::HOLDS).store(CacheRecord::holds(lpa), Ordering::Release);
        self.frames.set_state(frame, State::Dirty);
        if self.frames.dirty() > self.frames.dirty_limit {
            self.ring();
        }
    }

    /// Makes a frame's record say that it holds nothing. Called with the partition's write lock held.
    pub(crate) fn clear_record(&self, frame: u32) {
        let record = self.layout.cache_record(frame);
        self.image.word(record + CacheRecord::HOLDS).store(0, Ordering::Release);
    }

    /// A byte write arrives. Answers when the page it needed has come.
    ///
    /// # Errors
    /// As for [`with_cached`](Self::with_cached).
    pub(crate) fn store_cached(&self, store: &Store<'_>) -> Result<u64> {
        let whole = store.data.len() as u64 == PAGE;
        let ((), ready_at) = self.with_cached(store.lpa(), (whole, FlashRead::Now), |_, frame| {
            self.make_dirty(frame, store.lpa())?;
            self.image.store_words(self.layout.cache_frame(frame) + store.offset() as u64, store.data);
            Ok(())
        })?;
        self.count().transfer(Path::ByteWrite, store.tag, store.data.len() as u64);
        Ok(ready_at)
    }

    /// Reads bytes of one page through the cache. Answers when the page has come.
    ///
    /// # Errors
    /// As for [`with_cached`](Self::with_cached).
    pub(crate) fn load_cached(
        &self,
        flash: FlashRead,
        lpa: u64,
        offset: usize,
        into: &mut [u8],
    ) -> Result<u64> {
        {
            let (partition, _) = self.partition(lpa);
            let _index = partition.index.read();
            if let Some(frame) = self.frames.find(lpa) {
                self.frames.touch(frame);
                self.count().add(Counter::CacheHits, 1);
                self.image.read(self.layout.cache_frame(frame) + offset as u64, into);
                return Ok(self.frames.frame(frame).ready_at());
            }
        }
        let ((), ready_at) = self.with_cached(lpa, (false, flash), |_, frame| {
            self.image.read(self.layout.cache_frame(frame) + offset as u64, into);
            Ok(())
        })?;
        Ok(ready_at)
    }

    /// Writes a whole page for the host: into an empty frame, which then takes the place of the page's old
    /// one, so that it is never torn. Answers when a frame was there.
    ///
    /// # Errors
    /// No frame can be emptied, or power was lost; the old contents stay.
    pub(crate) fn write_page_cached(&self, lpa: u64, data: &[u8]) -> Result<u64> {
        let (frame, ready_at) = self.take_frame()?;
        if let Err(lost) = self.power.step() {
            self.frames.give(frame);
            return Err(lost);
        }
        self.image.write(self.layout.cache_frame(frame), data);
        let (partition, _) = self.partition(lpa);
        let _index = partition.index.write();
        let old = self.frames.find(lpa);
        if let Some(old) = old {
            self.frames.detach(old);
        }
        self.frames.attach(frame, lpa, 0);
        self.record(frame, lpa);
        if let Some(old) = old {
            // Both claim the page now. If it ends here, the newer one has it at power-up; nobody may fill the
            // older one before.
            self.power.step()?;
            self.clear_record(old);
            self.frames.give(old);
        }
        Ok(ready_at)
    }

    /// A page as it is now, which is not brought into the cache.
    ///
    /// # Errors
    /// The flash page cannot be read.
    pub(crate) fn peek_cached(&self, lpa: u64, into: &mut [u8]) -> Result<()> {
        let (partition, _) = self.partition(lpa);
        let _index = partition.index.read();
        match self.frames.find(lpa) {
            Some(frame) => self.image.read(self.layout.cache_frame(frame), into),
            None => self.read_flash(lpa, 0, into)?,
        }
        Ok(())
    }

    /// Forgets a trimmed page. Called with the partition's write lock held, after the mapping says so.
    ///
    /// # Errors
    /// Power was lost.
    pub(crate) fn drop_cached(&self, lpa: u64) -> Result<()> {
        if let Some(frame) = self.frames.find(lpa) {
            self.power.step()?;
            self.clear_record(frame);
            self.frames.detach(frame);
            self.frames.give(frame);
        }
        Ok(())
    }

    /// After a loss: puts what had arrived of a write into its page. Answers whether that could be done.
    pub(crate) fn store_cached_at_loss(&self, store: &Store<'_>) -> bool {
        self.power.run_firmware(true);
        let outcome = self.store_cached(store);
        self.power.run_firmware(false);
        outcome.is_ok()
    }
}
