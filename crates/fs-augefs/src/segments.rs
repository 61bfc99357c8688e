//! Segments that no domain owns, and the space that is promised.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use amphi_rt::sync::Mutex;
use amphi_vfs::{Error, Result};

/// Segments that only collection and checkpoints take, so that they can always go on.
pub const SEGMENTS_HELD: usize = 4;

/// Free segments.
pub struct Segments {
    free: Mutex<BTreeSet<u32>>,
}

impl Segments {
    /// These.
    pub const fn new(free: BTreeSet<u32>) -> Self {
        Self { free: Mutex::new(free) }
    }

    /// So many free segments, or none if there are too few. Without `last`, some must be left.
    pub fn take(&self, count: usize, last: bool) -> Option<Vec<u32>> {
        if count == 0 {
            return Some(Vec::new());
        }
        let mut free = self.free.lock();
        let held = if last { 0 } else { SEGMENTS_HELD };
        (free.len() >= count + held).then(|| std::iter::from_fn(|| free.pop_first()).take(count).collect())
    }

    /// Segments that nobody owns any more.
    pub fn give_back(&self, segments: impl IntoIterator<Item = u32>) {
        self.free.lock().extend(segments);
    }

    /// How many are free.
    pub fn len(&self) -> usize {
        self.free.lock().len()
    }
}

/// Blocks in use, and those promised to writes that wait in memory.
pub struct Space {
    used: AtomicU64,
    capacity: u64,
}

impl Space {
    /// So many can be used.
    pub const fn new(capacity: u64) -> Self {
        Self { used: AtomicU64::new(0), capacity }
    }

    /// Promises blocks.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    pub fn promise(&self, blocks: u64) -> Result<()> {
        let take = |used: u64| used.checked_add(blocks).filter(|used| *used <= self.capacity);
        let promised = self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, take);
        promised.map(drop).map_err(|_| Error::NoSpace)
    }

    /// Counts blocks that are there.
    pub fn add(&self, blocks: u64) {
        self.used.fetch_add(blocks, Ordering::AcqRel);
    }

    /// Blocks are used, or promised, no more.
    pub fn give_back(&self, blocks: u64) {
        self.used.fetch_sub(blocks, Ordering::AcqRel);
    }

    /// Blocks that can be used.
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Blocks that can be promised.
    pub fn free(&self) -> u64 {
        self.capacity.saturating_sub(self.used.load(Ordering::Acquire))
    }
}
