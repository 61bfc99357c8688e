//! Cached pages of a file and their duplicates (BY-14).
//!
//! The first modification of a page that the device holds keeps a duplicate of what is there. At write-back the two are compared line by line,
//! and the difference decides between bytes and block.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::format::PAGE;
use crate::frames::{Frame, FramePool, Stock};

/// A page of file data in host DRAM.
pub struct CachedPage {
    /// What readers see.
    pub data: Frame,
    /// What the device holds, where that is known and may differ from `data`.
    original: Option<Frame>,
    /// Whether the device lacks something of `data` that a reader could miss.
    pub dirty: bool,
    /// Whether the device holds a version of this page at all.
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
            page.original = Some(page.data.clone());
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

    /// The page's bytes, to change: keeps the duplicate first, if duplicates are wanted.
    pub fn data_mut(&mut self, duplicate: bool, budget: &PageBudget) -> &mut [u8; PAGE] {
        if duplicate && self.on_device && self.original.is_none() {
            self.original = Some(budget.pool.copy_of(&self.data));
            budget.add(1);
        }
        &mut self.data
    }

    /// Gives the page other contents as a whole. What it held becomes the duplicate as it is, if there is to be one: nothing is copied but what is new.
    /// Answers how many frames it takes more than before, which are not yet counted.
    pub fn overwrite(&mut self, now: &[u8; PAGE], duplicate: bool, frames: &mut Stock) -> usize {
        let duplicate = duplicate && self.on_device && self.original.is_none();
        if duplicate {
            self.original = Some(std::mem::replace(&mut self.data, frames.copy_of(now)));
        } else {
            self.data.copy_from_slice(now);
        }
        usize::from(duplicate)
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

    /// The duplicate to compare with; `None` if the whole page must be written.
    pub fn original(&self) -> Option<&[u8; PAGE]> {
        self.original.as_deref()
    }

    /// Whether the device holds bytes beyond the end of the file that must be overwritten before the file grows over them.
    pub fn hides_bytes(&self) -> bool {
        !self.dirty && self.original.is_some()
    }

    /// Notes that `bytes` went to the device at byte `from` of this page, and shows them.
    pub fn stored(&mut self, from: usize, bytes: &[u8]) {
        self.data[from..from + bytes.len()].copy_from_slice(bytes);
        if let Some(original) = &mut self.original {
            original[from..from + bytes.len()].copy_from_slice(bytes);
        }
    }

    /// Notes that the device now holds `data`. Answers the duplicate, which is not the page's any more but still counted, and whether it was dirty,
    /// which is still counted too.
    pub fn written(&mut self) -> (Option<Frame>, bool) {
        self.on_device = true;
        (self.original.take(), std::mem::replace(&mut self.dirty, false))
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

    /// Frames to fill, not yet counted.
    pub fn stock(&self, frames: usize) -> Stock {
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
