//! A regular file's pages, and what is known of them beside their contents.

use std::ops::Range;
use std::sync::Arc;

use amphi_page_cache::{Budget, Pages, ReadAhead, SharedFrame};

use crate::index::extent::Extents;
use crate::journal::InFlight;

/// A regular file's pages. Their contents are shared with a write on its way; a later change copies them.
#[derive(Default)]
pub struct FileBody {
    /// Pages in host DRAM.
    pub pages: Pages<SharedFrame>,
    /// Dirty pages that have no block; as many blocks are reserved.
    pub unmapped: u64,
    /// A write-back on its way.
    pub in_flight: Option<Arc<InFlight>>,
    /// Pages have gone to the journal since they were last written in place.
    pub journaled: bool,
    /// Changes whenever what the device holds of the file changes.
    pub version: u64,
    /// What was read ahead.
    pub ahead: ReadAhead,
}

impl FileBody {
    /// Whether nothing has to be written or is being written.
    pub const fn is_clean(&self) -> bool {
        self.pages.is_clean() && self.in_flight.is_none()
    }

    /// Forgets the cached pages of `range`. Returns for how many of them blocks were reserved. Nothing is in
    /// flight.
    pub fn forget(&mut self, budget: &Budget, extents: &Extents, range: Range<u64>) -> u64 {
        let unmapped = self.pages.forget(budget, extents, range);
        self.unmapped -= unmapped;
        unmapped
    }

    /// Frees about `pages` clean pages, those not used of late first; all of them if `also_used`.
    pub fn drop_clean(&mut self, budget: &Budget, pages: usize, also_used: bool) {
        // What is in flight is clean, and not yet on the device.
        if self.in_flight.is_none() {
            self.pages.drop_clean(budget, pages, also_used);
        }
    }
}
