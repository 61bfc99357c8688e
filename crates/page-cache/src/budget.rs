//! How many frames and dirty pages all files of a mount have, against their limits.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::frames::FramePool;

/// What the page cache takes, and may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheUse {
    /// Frames of 4 KB in use, with what file systems keep beside pages.
    pub frames: usize,
    /// Frames that it may take; one operation may go beyond by what it is about.
    pub frames_max: usize,
    /// Dirty pages.
    pub dirty: usize,
    /// Dirty pages from which on writers wait.
    pub dirty_max: usize,
}

/// Limits of a cache, in pages.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Frames beyond which clean pages are dropped.
    pub frames: usize,
    /// Frames down to which a file's clean pages are dropped once they are: fewer than `frames`, so that it
    /// is not looked for room at every page.
    pub drop_to: usize,
    /// Frames at which no further file is looked at.
    pub enough: usize,
    /// Dirty pages from which on writers wait; from half of it on, writing back should start.
    pub dirty: usize,
}

/// Counts the frames and dirty pages of all files against their limits.
#[derive(Debug)]
pub struct Budget {
    frames: AtomicUsize,
    dirty: AtomicUsize,
    limits: Limits,
    /// Frames that are nobody's, and count as nobody's.
    pub pool: FramePool,
}

impl Budget {
    /// A budget with these limits, of which nothing is used.
    pub fn new(limits: Limits) -> Self {
        let (frames, dirty) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { frames, dirty, limits, pool: FramePool::default() }
    }

    /// Counts `frames` more.
    #[inline]
    pub fn add(&self, frames: usize) {
        if frames > 0 {
            self.frames.fetch_add(frames, Ordering::Relaxed);
        }
    }

    /// Counts `frames` fewer.
    #[inline]
    pub fn remove(&self, frames: usize) {
        if frames > 0 {
            self.frames.fetch_sub(frames, Ordering::Relaxed);
        }
    }

    /// Counts `pages` more dirty ones.
    #[inline]
    pub(crate) fn dirtied(&self, pages: usize) {
        if pages > 0 {
            self.dirty.fetch_add(pages, Ordering::Relaxed);
        }
    }

    /// Counts `pages` fewer dirty ones.
    #[inline]
    pub(crate) fn cleaned(&self, pages: usize) {
        if pages > 0 {
            self.dirty.fetch_sub(pages, Ordering::Relaxed);
        }
    }

    /// Whether more is cached than allowed.
    #[inline]
    pub fn exceeded(&self) -> bool {
        self.frames.load(Ordering::Relaxed) > self.limits.frames
    }

    /// Frames to free once the limit is passed.
    #[inline]
    pub fn excess(&self) -> usize {
        self.frames.load(Ordering::Relaxed).saturating_sub(self.limits.drop_to)
    }

    /// Whether no further file need be looked at for clean pages.
    pub fn is_enough(&self) -> bool {
        self.frames.load(Ordering::Relaxed) <= self.limits.enough
    }

    /// Whether writers must wait.
    #[inline]
    pub fn too_dirty(&self) -> bool {
        self.dirty.load(Ordering::Relaxed) > self.limits.dirty
    }

    /// Whether writing back should start: half of what makes writers wait.
    #[inline]
    pub fn rather_dirty(&self) -> bool {
        self.dirty.load(Ordering::Relaxed) > self.limits.dirty / 2
    }

    /// All of it.
    pub fn usage(&self) -> CacheUse {
        CacheUse {
            frames: self.frames.load(Ordering::Relaxed),
            frames_max: self.limits.frames,
            dirty: self.dirty.load(Ordering::Relaxed),
            dirty_max: self.limits.dirty,
        }
    }
}
