//! Finding the cache again at power-up: its dirty frames are in protected memory.

use std::sync::atomic::Ordering;

use amphi_device::{Error, Result};

use crate::format::{CacheRecord, PAGE};
use crate::page_cache::PageCache;
use crate::page_cache::frames::State;
use crate::planted::{self, Bug};

impl PageCache {
    /// Reads the frames' records. Two frames may claim one page if the firmware died while one took the
    /// other's place: the newer one holds it. A page trimmed after its frame became dirty is trimmed.
    ///
    /// # Errors
    /// A record that no device writes.
    pub(crate) fn load_cache(&self) -> Result<()> {
        for frame in 0..self.layout.cache_frames as u32 {
            let record = self.layout.cache_record(frame);
            let holds = self.image.word(record + CacheRecord::HOLDS).load(Ordering::Acquire);
            if holds == 0 || frame % 4 == 1 && planted::has(Bug::CachedPageForgotten) {
                continue;
            }
            let seq = self.image.word(record + CacheRecord::SEQ).load(Ordering::Acquire);
            let lpa = CacheRecord::held(holds)
                .filter(|&lpa| lpa < self.layout.capacity_pages && seq < 1 << 62)
                .ok_or_else(|| {
                    Error::Image(format!("cache frame {frame} claims to hold {holds:#x} since {seq}"))
                })?;
            let old = self.frames.find(lpa);
            let old_seq = old.map(|old| {
                self.image.word(self.layout.cache_record(old) + CacheRecord::SEQ).load(Ordering::Relaxed)
            });
            if old_seq > Some(seq) || self.marks(lpa, self.mapping_with_trims(lpa)).written_at >= seq {
                self.clear_record(frame);
                continue;
            }
            if let Some(old) = old {
                self.clear_record(old);
                self.frames.detach(old);
            }
            self.frames.attach(frame, lpa, 0);
            self.frames.set_state(frame, State::Dirty);
        }
        self.frames.gather_empty();
        Ok(())
    }

    /// What of the image the cache takes, as address and length: the frames that hold what flash does not,
    /// with their records.
    pub(crate) fn in_image(&self) -> Vec<(u64, u64)> {
        let dirty =
            (0..self.frames.len() as u32).filter(|&frame| self.frames.frame(frame).state() == State::Dirty);
        dirty
            .flat_map(|frame| {
                let record = (self.layout.cache_record(frame), size_of::<CacheRecord>() as u64);
                [record, (self.layout.cache_frame(frame), PAGE)]
            })
            .collect()
    }
}
