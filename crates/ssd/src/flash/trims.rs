//! The trim log: what was trimmed since the last mapping checkpoint.
//!
//! A trim leaves nothing in flash, and the records of the trimmed pages stay there until their blocks are
//! erased. So each trim is noted in protected memory, one record a command and partition, until a checkpoint
//! holds what it says. When the log is full, a checkpoint is taken at once.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use amphi_rt::sync::Mutex;

use crate::error::ImageError;
use crate::format::{Layout, TRIM_RECORDS, TrimRecord, control};
use crate::image::Image;

/// Ranges of logical pages and when each was trimmed last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TrimRanges(BTreeMap<u64, (u64, u64)>);

impl TrimRanges {
    /// Pages `first..end` were trimmed at `at`, later than everything noted so far.
    fn add(&mut self, first: u64, end: u64, at: u64) {
        let meeting: Vec<(u64, (u64, u64))> = self
            .0
            .range(..end)
            .rev()
            .take_while(|(_, (old_end, _))| *old_end > first)
            .map(|(&from, &range)| (from, range))
            .collect();
        for (old, (old_end, old_at)) in meeting {
            self.0.remove(&old);
            if old < first {
                self.0.insert(old, (first, old_at));
            }
            if old_end > end {
                self.0.insert(end, (old_end, old_at));
            }
        }
        self.0.insert(first, (end, at));
    }

    /// When a page was trimmed, if it was.
    pub(crate) fn at(&self, lpa: u64) -> Option<u64> {
        self.0.range(..=lpa).next_back().filter(|(_, (end, _))| lpa < *end).map(|(_, (_, at))| *at)
    }

    /// Whether nothing was trimmed.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads an image's trim log.
    ///
    /// # Errors
    /// Its ends are impossible, or a record lies outside the device.
    pub(crate) fn read(image: &Image, layout: &Layout) -> Result<Self, ImageError> {
        let head = image.word(control!(trim_head)).load(Ordering::Relaxed);
        let tail = image.word(control!(trim_tail)).load(Ordering::Relaxed);
        if head > tail || tail - head > TRIM_RECORDS || tail >= 1 << 62 {
            return Err(ImageError::Corrupt(format!(
                "the trim log's head {head} and tail {tail} do not fit its {TRIM_RECORDS} records"
            )));
        }
        let mut ranges = Self::default();
        for number in head..tail {
            let record: TrimRecord = image.read_struct(layout.trim_record(number));
            let (first, at) = (u64::from(record.lpa.get()), record.at.get());
            let end = first + u64::from(record.pages.get());
            if first == end || end > layout.capacity_pages || at >= 1 << 62 {
                return Err(ImageError::Corrupt(format!("trim record {number} is outside the device")));
            }
            ranges.add(first, end, at);
        }
        Ok(ranges)
    }
}

/// The trim log while there is power.
#[derive(Debug, Default)]
pub(crate) struct TrimLog {
    /// Held while a number is drawn and its record appended, so that records lie in the order of their
    /// numbers.
    pub(super) order: Mutex<()>,
    /// What the log held at power-up.
    pub(crate) before: TrimRanges,
}

impl TrimLog {
    /// The log as power-up found it.
    pub(crate) fn new(before: TrimRanges) -> Self {
        Self { order: Mutex::new(()), before }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;

    #[test]
    fn the_last_trim_of_a_page_counts() {
        for seed in 0..50 {
            let mut dice = Dice::new(seed);
            let mut ranges = TrimRanges::default();
            let mut pages = [None; 100];
            for at in 1..30 {
                let first = dice.below(100);
                let end = first + 1 + dice.below(100 - first);
                ranges.add(first, end, at);
                pages[first as usize..end as usize].fill(Some(at));
            }
            for (page, at) in (0..).zip(pages) {
                assert_eq!(ranges.at(page), at, "seed {seed} page {page}");
            }
            assert_eq!(ranges.at(100), None);
        }
    }
}
