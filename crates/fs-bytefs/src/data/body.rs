//! What is below a regular file's inode: where its pages are, which of them are cached, and the blocks
//! reserved for those to come.
//!
//! Bytes beyond the end of a file are undefined on the device and zero in the cache: a page is cleared behind
//! the end when it is read, and before a file grows, hidden bytes of its last page are made dirty, so that
//! they are overwritten before the new size counts.

use std::ops::Range;

use amphi_device::{BlockPort, Lpa, WriteLog};
use amphi_page_cache::{ReadAhead, Run, Wanted, frames};
use amphi_rt::sync::Mutex;
use amphi_vfs::{Error, Result};
use amphi_volume::read_runs;
use smallvec::SmallVec;

use crate::base::Base;
use crate::data::duplicate::{self, CachedPage, CachedPages, hides_bytes};
use crate::format::PAGE;
use crate::index::extent::ExtentTree;
use crate::planted::{self, Bug};
use crate::space::bitmap::Bitmap;

/// Most pages read by one command.
const READ_RUN_MAX: u64 = 64;

/// Nodes reserved beyond those that the pages need by their number.
const NODES_SPARE: u64 = 4;
/// Extents, each of which was split, that a node holds at the least.
const SPLITS_PER_NODE: u64 = 128;

/// Blocks that a write of several parts has for all of them before it begins with the first one, so that it
/// is there as a whole or not at all.
pub struct Promise<'a> {
    blocks: &'a Bitmap,
    blocks_left: u64,
}

impl<'a> Promise<'a> {
    /// For a write of the bytes `offset .. end` in parts of `part` bytes. One part promises nothing: what it
    /// reserves itself is all or nothing.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    pub fn of_parts<D>(
        base: &'a Base<D>,
        file: &FileBody,
        offset: u64,
        end: u64,
        part: usize,
    ) -> Result<Self> {
        let mut promise = Self { blocks: &base.blocks, blocks_left: 0 };
        if end - offset <= part as u64 {
            return Ok(promise);
        }
        let parts = (end - offset).div_ceil(part as u64);
        let (first, last) = (offset / PAGE as u64, (end - 1) / PAGE as u64);
        let Wanted { unmapped, unwritten } = file.pages.wanted(&file.tree, first, last);
        let splits = unmapped + 2 * (file.pages.dirty_pages() as u64 + unmapped + unwritten);
        // Each part may find the nodes of the one before it used, and the tree one level deeper than now.
        let nodes = parts * (file.tree.insert_needs() + 2 + NODES_SPARE) + splits.div_ceil(SPLITS_PER_NODE);
        if !base.blocks.reserve(unmapped + nodes) {
            return Err(Error::NoSpace);
        }
        promise.blocks_left = unmapped + nodes;
        Ok(promise)
    }
}

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        self.blocks.unreserve(self.blocks_left);
    }
}

/// Pages as the device has them, ascending.
pub type Fetched = Vec<(u64, CachedPage)>;

/// What is below a regular file's inode.
#[derive(Default)]
pub struct FileBody {
    /// Where its pages are.
    pub tree: ExtentTree,
    /// Pages in host DRAM.
    pub pages: CachedPages,
    /// Dirty pages that have no block yet; as many blocks are reserved.
    pub unmapped: u64,
    /// Blocks reserved for extent nodes.
    pub reserved_nodes: u64,
    /// Changes whenever what the device holds of the file does: pages read before are not kept then.
    pub version: u64,
    /// What was read ahead.
    pub ahead: Mutex<ReadAhead>,
}

impl FileBody {
    /// A file with these extents and nothing cached.
    pub fn new(tree: ExtentTree) -> Self {
        Self { tree, ..Self::default() }
    }

    /// Copies `into.len()` bytes at `offset` out of the cache; false if a page is on the device only.
    #[inline]
    pub fn copy_out(&self, offset: u64, into: &mut [u8]) -> bool {
        self.pages.copy_out(&self.tree, offset, into)
    }

    /// Reads the pages `first ..= last` that the device holds and the cache does not, all of them on their
    /// way together.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn fetch<D: BlockPort + WriteLog>(
        &self,
        base: &Base<D>,
        size_on_device: u64,
        first: u64,
        last: u64,
    ) -> Result<Fetched> {
        let runs: SmallVec<[Run; 2]> =
            self.pages.all_missing(&self.tree, first, last, READ_RUN_MAX).collect();
        let valid = |index: u64| size_on_device.saturating_sub(index * PAGE as u64).min(PAGE as u64) as usize;
        let places = runs.iter().map(|run| (Some(Lpa(run.lba)), run.pages as usize));
        let mut fetched = Fetched::new();
        for (run, bytes) in runs.iter().zip(read_runs(&*base.device, places)?) {
            let pages = (run.index..).zip(frames(bytes));
            fetched.extend(pages.map(|(index, frame)| (index, duplicate::read(frame, valid(index)))));
        }
        Ok(fetched)
    }

    /// Keeps pages that were read and did not come into the cache meanwhile.
    pub fn keep<D>(&mut self, base: &Base<D>, fetched: Fetched) {
        for (index, page) in fetched {
            if self.pages.get(index).is_none() {
                self.pages.keep(&base.pages, index, page, false);
            }
        }
    }

    /// Brings the pages `first ..= last` that the device holds into the cache.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn load<D: BlockPort + WriteLog>(
        &mut self,
        base: &Base<D>,
        size_on_device: u64,
        first: u64,
        last: u64,
    ) -> Result<()> {
        let fetched = self.fetch(base, size_on_device, first, last)?;
        self.keep(base, fetched);
        Ok(())
    }

    /// Reserves blocks for `wanted` more unmapped pages and the extent nodes that all of them could need, of
    /// what was promised as far as that goes.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    pub fn reserve<D>(&mut self, base: &Base<D>, wanted: Wanted, promise: &mut Promise<'_>) -> Result<()> {
        if wanted == Wanted::default() {
            return Ok(());
        }
        // At worst every page is an extent of its own, and one put to use splits its extent in three: a full
        // node per 128 extents once split, and a path to the root.
        let Wanted { unmapped: wanted, unwritten } = wanted;
        let pages = self.unmapped + wanted + 2 * (self.pages.dirty_pages() as u64 + unwritten);
        let nodes = self.tree.insert_needs() + NODES_SPARE + pages.div_ceil(SPLITS_PER_NODE);
        let more_nodes = nodes.saturating_sub(self.reserved_nodes);
        // Space that was reserved for the file is there: nodes to put it to use are found even on a full file
        // system.
        let only_reserved = wanted == 0;
        let kept = promise.blocks_left.min(wanted + more_nodes);
        let missing = wanted + more_nodes - kept;
        let found =
            if only_reserved { base.blocks.reserve_last(missing) } else { base.blocks.reserve(missing) };
        if !found {
            return Err(Error::NoSpace);
        }
        promise.blocks_left -= kept;
        self.unmapped += wanted;
        self.reserved_nodes += more_nodes;
        Ok(())
    }

    /// Before the file grows beyond `size_on_device`: makes bytes that the last page hides dirty.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn uncover_tail<D: BlockPort + WriteLog>(
        &mut self,
        base: &Base<D>,
        size_on_device: u64,
    ) -> Result<()> {
        if size_on_device.is_multiple_of(PAGE as u64) || planted::has(Bug::HiddenBytesUncovered) {
            return Ok(());
        }
        let last = size_on_device / PAGE as u64;
        self.load(base, size_on_device, last, last)?;
        if self.pages.get(last).is_some_and(hides_bytes) {
            self.pages.mark_dirty(&base.pages, last);
        }
        Ok(())
    }

    /// Forgets the cached pages of `range`, with their reservations, before it loses its blocks.
    pub fn forget<D>(&mut self, base: &Base<D>, range: Range<u64>) {
        self.version += 1;
        let unmapped = self.pages.forget(&base.pages, &self.tree, range);
        self.unmapped -= unmapped;
        base.blocks.unreserve(unmapped);
        if self.pages.is_clean() {
            base.blocks.unreserve(std::mem::take(&mut self.reserved_nodes));
        }
    }

    /// Makes a part of a page read as zeros; whether that changes something.
    fn zero<D: BlockPort + WriteLog>(
        &mut self,
        base: &Base<D>,
        size_on_device: u64,
        (index, bytes): (u64, Range<usize>),
        duplicate: bool,
    ) -> Result<bool> {
        self.load(base, size_on_device, index, index)?;
        let changes = self.pages.change(&base.pages, index, |page| {
            let changes = page.data[bytes.clone()].iter().any(|&byte| byte != 0);
            if changes {
                duplicate::change(page, bytes, duplicate, &base.pages.pool).fill(0);
            }
            changes
        });
        Ok(changes.unwrap_or(false))
    }

    /// Makes a part of a page read as zeros, dirty where that changes something.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn zero_in_page<D: BlockPort + WriteLog>(
        &mut self,
        base: &Base<D>,
        size_on_device: u64,
        index: u64,
        bytes: Range<usize>,
    ) -> Result<()> {
        if self.zero(base, size_on_device, (index, bytes), base.keeps_duplicates())? {
            self.pages.mark_dirty(&base.pages, index);
        }
        Ok(())
    }

    /// Clears the rest of the page in which a file of `size` bytes ends. The device keeps what it has there.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn clear_behind<D: BlockPort + WriteLog>(
        &mut self,
        base: &Base<D>,
        size: u64,
        size_on_device: u64,
    ) -> Result<()> {
        let (index, from) = (size / PAGE as u64, (size % PAGE as u64) as usize);
        if from > 0 {
            // The duplicate says what must be overwritten before the file grows again.
            self.zero(base, size_on_device, (index, from..PAGE), true)?;
        }
        Ok(())
    }
}
