//! Cached pages of a file and their duplicates (BY-14).
//!
//! The first modification of a line of a page that the device holds keeps a duplicate of what is there. At write-back the two are compared line by line,
//! and the difference decides between bytes and block. Lines that nobody touched need no duplicate to be known as equal: a write of 64 B copies one line, not the page.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::data::diff::{LineMask, kept_lines_by_bytes, lines_by_bytes, lines_of, runs};
use crate::data::frames::{Frame, FramePool, Stock};
use crate::format::{LINE, PAGE};

/// What the device holds of a page.
struct Duplicate {
    frame: Frame,
    /// The lines that may differ from the page's data. What the frame has in others means nothing.
    kept: LineMask,
}

/// A page of file data in host DRAM.
pub struct CachedPage {
    /// What readers see.
    pub data: Frame,
    /// What the device holds, where that is known and may differ from `data`.
    original: Option<Duplicate>,
    /// Whether the device lacks something of `data` that a reader could miss.
    pub dirty: bool,
    /// Whether the device holds what `data` was before it was modified, so that a duplicate would say what is there.
    on_device: bool,
    /// Used since the last time that room was looked for: then it stays this time.
    used: AtomicBool,
}

impl CachedPage {
    /// A page as read from the device, of which the first `valid` bytes belong to the file. The rest reads as zeros, whatever the device has there.
    pub fn read(data: Frame, valid: usize) -> Self {
        let mut page =
            Self { data, original: None, dirty: false, on_device: true, used: AtomicBool::new(true) };
        if page.data[valid..].iter().any(|&byte| byte != 0) {
            page.original = Some(Duplicate { frame: page.data.clone(), kept: LineMask::MAX });
            page.data[valid..].fill(0);
        }
        page
    }

    /// A page of zeros that the device does not hold.
    pub fn hole() -> Self {
        Self {
            data: Box::new([0; PAGE]),
            original: None,
            dirty: false,
            on_device: false,
            used: AtomicBool::new(true),
        }
    }

    /// A page written as a whole, whose old contents nobody has read.
    pub const fn overwritten(data: Frame) -> Self {
        Self { data, original: None, dirty: true, on_device: false, used: AtomicBool::new(true) }
    }

    /// These bytes of the page, to change: keeps a duplicate of their lines first, if duplicates are wanted.
    pub fn data_mut(&mut self, bytes: Range<usize>, duplicate: bool, budget: &PageBudget) -> &mut [u8] {
        if duplicate && self.on_device && self.original.is_none() {
            self.original = Some(Duplicate { frame: budget.pool.frame(), kept: 0 });
            budget.add(1);
        }
        self.keep(lines_of(&bytes));
        &mut self.data[bytes]
    }

    /// Has the duplicate, if there is one, keep these lines.
    fn keep(&mut self, lines: LineMask) {
        let Some(Duplicate { frame, kept }) = &mut self.original else { return };
        for (line, lines) in runs(lines & !*kept) {
            let bytes = line * LINE..(line + lines) * LINE;
            frame[bytes.clone()].copy_from_slice(&self.data[bytes]);
        }
        *kept |= lines;
    }

    /// Gives the page other contents as a whole. Pages with few enough modified lines by `threshold` (none: all of them go by block) keep a duplicate, which is what the page
    /// held, as it is. Of one that is modified in more already there is none: it goes by block, and what it held need not be kept to find that out later.
    /// Answers how many frames it takes more than before, which are not yet counted.
    pub fn overwrite(&mut self, now: &[u8; PAGE], threshold: Option<u32>, frames: &mut Stock<'_>) -> usize {
        let first = threshold.filter(|_| self.on_device && self.original.is_none());
        if first.is_some_and(|threshold| lines_by_bytes(&self.data, now, threshold).is_some()) {
            let frame = std::mem::replace(&mut self.data, frames.copy_of(now));
            self.original = Some(Duplicate { frame, kept: LineMask::MAX });
            return 1;
        }
        if self.original.is_none() {
            self.on_device = false;
        }
        self.keep(LineMask::MAX);
        self.data.copy_from_slice(now);
        0
    }

    /// Frames of host DRAM that it takes: the duplicate is one too.
    pub const fn frames(&self) -> usize {
        if self.original.is_some() { 2 } else { 1 }
    }

    /// The page's bytes, to read.
    pub fn data(&self) -> &[u8; PAGE] {
        // Tested first: readers on other processors share the line.
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        &self.data
    }

    /// Whether it was used since this was asked the last time.
    pub fn was_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }

    /// The lines that differ from the duplicate, if the page goes by bytes by this threshold; `None` if it must be written whole.
    pub fn lines_by_bytes(&self, threshold: u32) -> Option<LineMask> {
        let Duplicate { frame, kept } = self.original.as_ref()?;
        kept_lines_by_bytes(frame, &self.data, *kept, threshold)
    }

    /// Whether the device holds bytes beyond the end of the file that must be overwritten before the file grows over them.
    pub fn hides_bytes(&self) -> bool {
        !self.dirty && self.original.is_some()
    }

    /// Notes that `bytes` went to the device at byte `from` of this page, and shows them.
    pub fn stored(&mut self, from: usize, bytes: &[u8]) {
        self.data[from..from + bytes.len()].copy_from_slice(bytes);
        if let Some(Duplicate { frame, .. }) = &mut self.original {
            frame[from..from + bytes.len()].copy_from_slice(bytes);
        }
    }

    /// Notes that the device now holds `data`. Answers the duplicate, which is not the page's any more but still counted, and whether it was dirty,
    /// which is still counted too.
    pub fn written(&mut self) -> (Option<Frame>, bool) {
        self.on_device = true;
        let duplicate = self.original.take().map(|original| original.frame);
        (duplicate, std::mem::replace(&mut self.dirty, false))
    }
}

/// What the page cache takes, and may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheUse {
    /// Frames of 4 KB in use, duplicates included.
    pub frames: usize,
    /// Frames that it may take; one operation may go beyond by what it is about.
    pub frames_max: usize,
    /// Dirty pages.
    pub dirty: usize,
    /// Dirty pages from which on writers wait.
    pub dirty_max: usize,
}

/// Counts the frames and dirty pages of all files against their limits.
#[derive(Debug)]
pub struct PageBudget {
    frames: AtomicUsize,
    frames_max: usize,
    dirty: AtomicUsize,
    dirty_max: usize,
    /// Frames that are nobody's, and count as nobody's.
    pool: FramePool,
}

impl PageBudget {
    /// A budget of so many frames and dirty pages.
    pub fn new(frames_max: usize, dirty_max: usize) -> Self {
        let (frames, dirty) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { frames, frames_max, dirty, dirty_max, pool: FramePool::default() }
    }

    /// Up to `frames` frames to fill, not counted.
    pub fn stock(&self, frames: usize) -> Stock<'_> {
        self.pool.stock(frames)
    }

    /// Takes frames back that are not counted any more, or never were.
    pub fn give(&self, frames: impl IntoIterator<Item = Frame>) {
        self.pool.give(frames);
    }

    /// Counts `frames` more.
    pub fn add(&self, frames: usize) {
        if frames > 0 {
            self.frames.fetch_add(frames, Ordering::Relaxed);
        }
    }

    /// Counts `frames` fewer.
    pub fn remove(&self, frames: usize) {
        if frames > 0 {
            self.frames.fetch_sub(frames, Ordering::Relaxed);
        }
    }

    /// Counts `pages` more dirty ones.
    pub fn dirtied(&self, pages: usize) {
        if pages > 0 {
            self.dirty.fetch_add(pages, Ordering::Relaxed);
        }
    }

    /// Counts `pages` fewer dirty ones.
    pub fn cleaned(&self, pages: usize) {
        if pages > 0 {
            self.dirty.fetch_sub(pages, Ordering::Relaxed);
        }
    }

    /// Whether more is cached than allowed.
    pub fn exceeded(&self) -> bool {
        self.frames.load(Ordering::Relaxed) > self.frames_max
    }

    /// Frames to free once the limit is passed: down to fifteen sixteenths, so that it is not looked for room at every page.
    pub fn excess(&self) -> usize {
        self.frames.load(Ordering::Relaxed).saturating_sub(self.frames_max - self.frames_max / 16)
    }

    /// Whether writers must wait.
    pub fn too_dirty(&self) -> bool {
        self.dirty.load(Ordering::Relaxed) > self.dirty_max
    }

    /// Whether writing back should start: half of what makes writers wait.
    pub fn rather_dirty(&self) -> bool {
        self.dirty.load(Ordering::Relaxed) > self.dirty_max / 2
    }

    /// All of it.
    pub fn usage(&self) -> CacheUse {
        CacheUse {
            frames: self.frames.load(Ordering::Relaxed),
            frames_max: self.frames_max,
            dirty: self.dirty.load(Ordering::Relaxed),
            dirty_max: self.dirty_max,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Write {
            from: usize,
            len: usize,
            byte: u8,
        },
        /// Writes the whole page: what it holds, with so many lines changed.
        Overwrite {
            lines: usize,
            byte: u8,
        },
        Direct {
            from: usize,
            len: usize,
            byte: u8,
        },
        WriteBack,
    }

    fn step() -> impl Strategy<Value = Step> {
        let len = || prop_oneof![4 => 1..200_usize, 1 => 1..PAGE];
        prop_oneof![
            4 => (0..PAGE, len(), 0..4_u8).prop_map(|(from, len, byte)| Step::Write { from, len, byte }),
            2 => (0..20_usize, 0..4_u8).prop_map(|(lines, byte)| Step::Overwrite { lines, byte }),
            1 => (0..PAGE, len(), 0..4_u8).prop_map(|(from, len, byte)| Step::Direct { from, len, byte }),
            2 => Just(Step::WriteBack),
        ]
    }

    proptest! {
        #[test]
        fn what_goes_by_bytes_is_all_that_the_device_lacks(
            valid in 0..=PAGE,
            threshold in prop_oneof![Just(8), Just(0), Just(64), Just(2)],
            steps in proptest::collection::vec(step(), 1..30),
        ) {
            let budget = PageBudget::new(100, 100);
            // Frames of the pool hold what they held before.
            budget.give((0..3).map(|byte| Box::new([byte; PAGE])));
            let mut device = [1; PAGE];
            let mut page = CachedPage::read(Box::new(device), valid);
            let mut expected = device;
            expected[valid..].fill(0);
            page.dirty = page.hides_bytes();
            for step in steps {
                match step {
                    Step::Write { from, len, byte } => {
                        let bytes = from..(from + len).min(PAGE);
                        expected[bytes.clone()].fill(byte);
                        page.data_mut(bytes, true, &budget).fill(byte);
                        page.dirty = true;
                    }
                    Step::Overwrite { lines, byte } => {
                        (0..lines).for_each(|line| expected[line * 3 * LINE] = byte);
                        page.overwrite(&expected, Some(threshold), &mut budget.stock(1));
                        page.dirty = true;
                    }
                    Step::Direct { from, len, byte } if !page.dirty => {
                        let bytes = from..(from + len).min(PAGE);
                        device[bytes.clone()].fill(byte);
                        expected[bytes.clone()].fill(byte);
                        page.stored(from, &vec![byte; bytes.len()]);
                    }
                    Step::Direct { .. } => {}
                    Step::WriteBack => {
                        match page.lines_by_bytes(threshold) {
                            Some(mask) => (0..PAGE)
                                .filter(|at| mask >> (at / LINE) & 1 == 1)
                                .for_each(|at| device[at] = page.data[at]),
                            None => device = *page.data,
                        }
                        budget.give(page.written().0);
                        prop_assert!(device == expected, "the device has what readers see");
                    }
                }
                prop_assert!(*page.data == expected);
            }
        }
    }
}
