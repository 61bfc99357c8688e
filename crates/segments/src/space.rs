//! Segments that no domain owns, and the space that is promised.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use amphi_device::BlockPort;
use amphi_rt::sync::Mutex;
use amphi_vfs::{Error, NAME_BYTES_MAX, Result, StatFs};
use amphi_volume::Discard;

use crate::format::PAGE;
use crate::ground::Ground;

/// Segments that only collection, checkpoints and recovery take, so that they can always go on: some, and
/// both logs of each domain, which recovery begins anew.
pub const fn segments_held(domains: u32) -> usize {
    4 + 2 * domains as usize
}

/// Free segments.
pub struct Segments {
    free: Mutex<BTreeSet<u32>>,
    held: usize,
}

impl Segments {
    /// These, of which so many are held.
    pub const fn new(free: BTreeSet<u32>, held: usize) -> Self {
        Self { free: Mutex::new(free), held }
    }

    /// So many free segments, or none if there are too few. Without `last`, some must be left.
    pub fn take(&self, count: usize, last: bool) -> Option<Vec<u32>> {
        if count == 0 {
            return Some(Vec::new());
        }
        let mut free = self.free.lock();
        let held = if last { 0 } else { self.held };
        (free.len() >= count + held).then(|| std::iter::from_fn(|| free.pop_first()).take(count).collect())
    }

    /// Segments that nobody owns any more.
    pub fn give_back(&self, segments: impl IntoIterator<Item = u32>) {
        self.free.lock().extend(segments);
    }

    /// A segment is free no more.
    pub fn claim(&self, segment: u32) {
        self.free.lock().remove(&segment);
    }

    /// As [`amphi_vfs::FileSystem::discard_free`]. Nobody takes a segment while a run of them is discarded.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Invalid`].
    pub fn discard_free<D: BlockPort>(
        &self,
        ground: &Ground<D>,
        range: Range<u64>,
        shortest: u64,
    ) -> Result<u64> {
        let mut discard = Discard::new(&*ground.device, range, shortest, ground.areas.pages())?;
        let mut from = 0;
        loop {
            let free = self.free.lock();
            let Some(first) = free.range(from..).next().copied() else { return Ok(discard.bytes()) };
            from = (first..).find(|segment| !free.contains(segment)).unwrap_or(u32::MAX);
            let page = |segment: u32| {
                ground.areas.main_first() + u64::from(segment) * u64::from(ground.areas.segment_blocks)
            };
            discard.free_run(page(first)..page(from))?;
        }
    }

    /// Whether no more are free than are held.
    pub fn are_scarce(&self) -> bool {
        self.count() <= self.held
    }

    /// Segments that are enough to go on with.
    pub const fn enough(&self) -> usize {
        self.held + 2
    }

    /// How many are free.
    pub fn count(&self) -> usize {
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

    /// Counts anew.
    pub fn set_used(&self, blocks: u64) {
        self.used.store(blocks, Ordering::Release);
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

    /// What a file system with this space says of itself, and of its inodes.
    pub fn statfs(&self, inodes: u64, inodes_free: u64) -> StatFs {
        StatFs {
            block_bytes: PAGE as u32,
            blocks: self.capacity,
            blocks_free: self.free(),
            blocks_available: self.free(),
            inodes,
            inodes_free,
            name_bytes_max: NAME_BYTES_MAX as u32,
        }
    }
}
