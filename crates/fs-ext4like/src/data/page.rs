//! Pages of files in host DRAM, and how many there may be.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::journal::buffers::SharedBlock;

/// A cached page of a file.
pub struct Page {
    /// Contents. Shared with a write on its way; a later change copies them.
    pub data: SharedBlock,
    /// Changed and not handed to the device.
    pub dirty: bool,
    /// Used since the last sweep.
    pub used: std::sync::atomic::AtomicBool,
}

impl Page {
    /// A page that holds what the device holds.
    pub fn clean(data: SharedBlock) -> Self {
        Self { data, dirty: false, used: std::sync::atomic::AtomicBool::new(true) }
    }

    /// Whether it was used since this was last asked.
    pub fn was_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }
}

/// What the page cache takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheUse {
    /// Pages.
    pub pages: usize,
    /// Dirty ones among them.
    pub dirty: usize,
}

/// Counts of all files' pages, with their limits.
pub struct PageBudget {
    pages: AtomicUsize,
    dirty: AtomicUsize,
    limit: usize,
    dirty_limit: usize,
}

impl PageBudget {
    /// No pages yet.
    pub const fn new(limit: usize, dirty_limit: usize) -> Self {
        Self { pages: AtomicUsize::new(0), dirty: AtomicUsize::new(0), limit, dirty_limit }
    }

    /// Pages came.
    pub fn add(&self, pages: usize) {
        self.pages.fetch_add(pages, Ordering::Relaxed);
    }

    /// Pages left.
    pub fn remove(&self, pages: usize) {
        self.pages.fetch_sub(pages, Ordering::Relaxed);
    }

    /// A page became dirty.
    pub fn dirtied(&self) {
        self.dirty.fetch_add(1, Ordering::Relaxed);
    }

    /// Pages are dirty no more.
    pub fn cleaned(&self, pages: usize) {
        self.dirty.fetch_sub(pages, Ordering::Relaxed);
    }

    /// Pages above the limit.
    pub fn excess(&self) -> usize {
        self.pages.load(Ordering::Relaxed).saturating_sub(self.limit)
    }

    /// Whether writers must write back.
    pub fn too_dirty(&self) -> bool {
        self.dirty.load(Ordering::Relaxed) > self.dirty_limit
    }

    /// Whether write-back should begin in the background: at half of what writers are stopped at, as the
    /// kernel has it.
    pub fn rather_dirty(&self) -> bool {
        self.dirty.load(Ordering::Relaxed) > self.dirty_limit / 2
    }

    /// The counts.
    pub fn usage(&self) -> CacheUse {
        CacheUse { pages: self.pages.load(Ordering::Relaxed), dirty: self.dirty.load(Ordering::Relaxed) }
    }
}
