//! Regular files: reading and writing through the page cache.
//!
//! A write changes cached pages only and reserves the blocks it will need, so that writing back never runs out of space; `writeback.rs` brings
//! the pages to the device. Bytes beyond the end of a file are undefined on the device and zero in the cache: a page is cleared behind the end when it
//! is read, and before a file grows, hidden bytes of its last page are made dirty, so that they are overwritten before the new size counts.

use amphi_device::{BlockPort, Lpa, Structure, WriteLog};
use amphi_names::{move_atime, note_read, read_moves_atime, shed_capability};
use amphi_radix::Radix;
use amphi_vfs::{Cred, Error, Result, Seek, WriteMode};
use amphi_volume::io_error;

use crate::core::Core;
use crate::data::page::{CachedPage, PageBudget};
use crate::data::writeback::write_back;
use crate::format::PAGE;
use crate::index::extent::{ExtentTree, FILE_PAGES_MAX, Mapped};
use crate::index::inode::{Inode, State};
use crate::planted::{self, Bug};

/// Largest file in bytes.
pub const FILE_BYTES_MAX: u64 = FILE_PAGES_MAX * PAGE as u64 - 1;
/// Most pages read by one command.
const READ_RUN_MAX: u64 = 64;
/// Fewest pages that a write takes into the cache at once.
const WRITE_PART_MIN: usize = 16;
/// Most pages that a read brings into the cache before it hands them out: 4 MB.
const READ_PART_MAX: usize = 1024;

/// Pages that a write needs blocks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Wanted {
    /// Without a block.
    unmapped: u64,
    /// With a reserved block that holds nothing yet.
    unwritten: u64,
}

/// What is below a regular file's inode.
pub struct FileBody {
    /// Where its pages are.
    pub tree: ExtentTree,
    /// Pages in host DRAM, by page of the file.
    pub pages: Radix<CachedPage>,
    /// Pages that are dirty, in the order they became so.
    pub dirty: Vec<u64>,
    /// Dirty pages that have no block yet; as many blocks are reserved.
    pub unmapped: u64,
    /// Blocks reserved for extent nodes.
    pub reserved_nodes: u64,
}

impl FileBody {
    /// A file with these extents and nothing cached.
    pub fn new(tree: ExtentTree) -> Self {
        Self { tree, pages: Radix::default(), dirty: Vec::new(), unmapped: 0, reserved_nodes: 0 }
    }

    /// Pages that writes to come will take.
    pub const fn reserved_pages(&self) -> u64 {
        self.unmapped
    }

    /// Copies `into.len()` bytes at `offset` out of the cache; false if a page is on the device only.
    fn copy_cached(&self, offset: u64, into: &mut [u8]) -> bool {
        let mut done = 0;
        while done < into.len() {
            let at = offset + done as u64;
            let (index, from) = (at / PAGE as u64, (at % PAGE as u64) as usize);
            let len = (PAGE - from).min(into.len() - done);
            let part = &mut into[done..done + len];
            match self.pages.get(index) {
                Some(page) => part.copy_from_slice(&page.data()[from..from + len]),
                None if matches!(self.tree.map(index), Mapped::At { .. }) => return false,
                None => part.fill(0),
            }
            done += len;
        }
        true
    }

    /// Adds a page to the cache.
    fn keep<D: BlockPort + WriteLog>(&mut self, core: &Core<D>, index: u64, page: CachedPage) {
        core.pages.add(page.frames());
        if page.dirty {
            core.pages.dirtied(1);
            self.dirty.push(index);
        }
        self.pages.insert(index, page);
    }

    /// Brings the pages `first ..= last` that the device holds into the cache.
    fn load<D: BlockPort + WriteLog>(
        &mut self,
        core: &Core<D>,
        size_on_device: u64,
        first: u64,
        last: u64,
    ) -> Result<()> {
        let mut index = first;
        while index <= last {
            if self.pages.get(index).is_some() {
                index += 1;
                continue;
            }
            let (lba, run) = match self.tree.map(index) {
                Mapped::Hole { pages } | Mapped::Unwritten { pages, .. } => {
                    index = index.saturating_add(pages);
                    continue;
                }
                Mapped::At { lba, pages } => (lba, pages.min(last - index + 1).min(READ_RUN_MAX)),
            };
            let wanted = (1..run).find(|i| self.pages.get(index + i).is_some()).unwrap_or(run);
            let valid =
                |index: u64| size_on_device.saturating_sub(index * PAGE as u64).min(PAGE as u64) as usize;
            if wanted == 1 {
                let mut data = Box::new([0; PAGE]);
                core.device.read(Lpa(lba), &mut data[..], Structure::Data).map_err(io_error)?;
                self.keep(core, index, CachedPage::read(data, valid(index)));
            } else {
                let mut bytes = vec![0; wanted as usize * PAGE];
                core.device.read(Lpa(lba), &mut bytes, Structure::Data).map_err(io_error)?;
                for (i, data) in bytes.as_chunks::<PAGE>().0.iter().enumerate() {
                    let index = index + i as u64;
                    self.keep(core, index, CachedPage::read(Box::new(*data), valid(index)));
                }
            }
            index += wanted;
        }
        Ok(())
    }

    /// Counts the pages of `first ..= last` that a write would have to find blocks for.
    fn blocks_wanted(&self, first: u64, last: u64) -> Wanted {
        let mut wanted = Wanted::default();
        let mut index = first;
        while index <= last {
            let (pages, count) = match self.tree.map(index) {
                Mapped::At { pages, .. } => {
                    index += pages;
                    continue;
                }
                Mapped::Unwritten { pages, .. } => (pages, &mut wanted.unwritten),
                Mapped::Hole { pages } => (pages, &mut wanted.unmapped),
            };
            let end = last.min(index.saturating_add(pages - 1));
            *count +=
                (index..=end).filter(|i| !self.pages.get(*i).is_some_and(|page| page.dirty)).count() as u64;
            index = end + 1;
        }
        wanted
    }

    /// Reserves blocks for `wanted` more unmapped pages and the extent nodes that all of them could need.
    fn reserve<D: BlockPort + WriteLog>(&mut self, core: &Core<D>, wanted: Wanted) -> Result<()> {
        if wanted == Wanted::default() {
            return Ok(());
        }
        // At worst every page is an extent of its own, and one put to use splits its extent in three: a full node per 128 extents once split, and a
        // path to the root.
        let Wanted { unmapped: wanted, unwritten } = wanted;
        let pages = self.unmapped + wanted + 2 * (self.dirty.len() as u64 + unwritten);
        let nodes = self.tree.insert_needs() + 4 + pages.div_ceil(128);
        let more_nodes = nodes.saturating_sub(self.reserved_nodes);
        // Space that was reserved for the file is there: nodes to put it to use are found even on a full file system.
        let only_reserved = wanted == 0;
        let found = if only_reserved {
            core.blocks.reserve_last(more_nodes)
        } else {
            core.blocks.reserve(wanted + more_nodes)
        };
        if !found {
            return Err(Error::NoSpace);
        }
        self.unmapped += wanted;
        self.reserved_nodes += more_nodes;
        Ok(())
    }

    /// Makes a page dirty, once.
    pub fn mark_dirty<D: BlockPort + WriteLog>(&mut self, core: &Core<D>, index: u64) {
        if let Some(page) = self.pages.get_mut(index)
            && !page.dirty
        {
            page.dirty = true;
            core.pages.dirtied(1);
            self.dirty.push(index);
        }
    }

    /// Before the file grows beyond `size_on_device`: makes bytes that the last page hides dirty.
    pub fn uncover_tail<D: BlockPort + WriteLog>(
        &mut self,
        core: &Core<D>,
        size_on_device: u64,
    ) -> Result<()> {
        if size_on_device.is_multiple_of(PAGE as u64) || planted::has(Bug::HiddenBytesUncovered) {
            return Ok(());
        }
        let last = size_on_device / PAGE as u64;
        self.load(core, size_on_device, last, last)?;
        if self.pages.get(last).is_some_and(CachedPage::hides_bytes) {
            self.mark_dirty(core, last);
        }
        Ok(())
    }

    /// Forgets the cached pages from `first` up to `end`, with their reservations.
    pub fn forget<D: BlockPort + WriteLog>(&mut self, core: &Core<D>, first: u64, end: u64) {
        let forgotten = first..end;
        let tree = &self.tree;
        let (mut unmapped, mut frames, mut cleaned) = (0, 0, 0);
        self.pages.retain(|index, page| {
            let keep = !forgotten.contains(&index);
            if !keep {
                frames += page.frames();
                cleaned += usize::from(page.dirty);
            }
            if !keep && page.dirty && matches!(tree.map(index), Mapped::Hole { .. }) {
                unmapped += 1;
            }
            keep
        });
        self.dirty.retain(|index| !forgotten.contains(index));
        core.pages.remove(frames);
        core.pages.cleaned(cleaned);
        self.unmapped -= unmapped;
        core.blocks.unreserve(unmapped);
        if self.dirty.is_empty() {
            core.blocks.unreserve(std::mem::take(&mut self.reserved_nodes));
        }
    }

    /// Makes a part of a page read as zeros, dirty where that changes something.
    pub fn zero_in_page<D: BlockPort + WriteLog>(
        &mut self,
        core: &Core<D>,
        size_on_device: u64,
        index: u64,
        bytes: std::ops::Range<usize>,
    ) -> Result<()> {
        self.load(core, size_on_device, index, index)?;
        if let Some(page) = self.pages.get_mut(index)
            && page.data[bytes.clone()].iter().any(|&byte| byte != 0)
        {
            page.data_mut(bytes, core.keeps_duplicates(), &core.pages).fill(0);
            self.mark_dirty(core, index);
        }
        Ok(())
    }

    /// Clears the rest of the page in which a file of `size` bytes ends. The device keeps what it has there.
    pub fn clear_behind<D: BlockPort + WriteLog>(
        &mut self,
        core: &Core<D>,
        size: u64,
        size_on_device: u64,
    ) -> Result<()> {
        let (index, from) = (size / PAGE as u64, (size % PAGE as u64) as usize);
        if from == 0 {
            return Ok(());
        }
        self.load(core, size_on_device, index, index)?;
        if let Some(page) = self.pages.get_mut(index)
            && page.data[from..].iter().any(|&byte| byte != 0)
        {
            // The duplicate says what must be overwritten before the file grows again.
            page.data_mut(from..PAGE, true, &core.pages).fill(0);
        }
        Ok(())
    }

    /// Frees about `frames` frames of clean pages, those not used of late first; all of them if `also_used`. Returns how many frames it freed.
    pub fn drop_clean(&mut self, budget: &PageBudget, frames: usize, also_used: bool) -> usize {
        let mut freed = 0;
        self.pages.retain(|_, page| {
            let keep = page.dirty || freed >= frames || (page.was_used() && !also_used);
            if !keep {
                freed += page.frames();
            }
            keep
        });
        budget.remove(freed);
        freed
    }
}

/// Reads at `offset`; see [`amphi_vfs::FileSystem::read`].
///
/// # Errors
/// As there.
pub fn read<D: BlockPort + WriteLog>(
    core: &Core<D>,
    inode: &Inode<D>,
    offset: u64,
    into: &mut [u8],
) -> Result<usize> {
    let wanted = into.len() as u64;
    let clip = |state: &State<D>| state.size.saturating_sub(offset).min(wanted) as usize;
    {
        let state = inode.state.read();
        let file = state.file()?;
        let len = clip(&state);
        if len == 0 || file.copy_cached(offset, &mut into[..len]) {
            let moves = read_moves_atime(core, &state);
            drop(state);
            if moves {
                note_read(core, inode);
            }
            return Ok(len);
        }
    }
    let mut state = inode.state.write();
    let len = clip(&state);
    // In parts, so that one long read does not take more of the cache than there is.
    let part = READ_PART_MAX.min(core.options.page_cache_pages.div_ceil(2)) * PAGE;
    let mut done = 0;
    while done < len {
        let at = offset + done as u64;
        let end = (at / PAGE as u64 * PAGE as u64 + part as u64).min(offset + len as u64);
        let part = (end - at) as usize;
        let size_on_device = state.size_on_device;
        let file = state.file_mut()?;
        file.load(core, size_on_device, at / PAGE as u64, (end - 1) / PAGE as u64)?;
        let complete = file.copy_cached(at, &mut into[done..done + part]);
        debug_assert!(complete, "every mapped page of the range was loaded");
        done += part;
        if done < len && core.pages.exceeded() {
            file.drop_clean(&core.pages, usize::MAX, true);
        }
    }
    if read_moves_atime(core, &state) {
        move_atime(core, inode, &mut state);
    }
    drop(state);
    core.shrink_caches();
    Ok(len)
}

/// Writes at `offset` or the end; see [`amphi_vfs::FileSystem::write`].
///
/// # Errors
/// As there.
pub fn write<D: BlockPort + WriteLog>(
    core: &Core<D>,
    inode: &Inode<D>,
    offset: u64,
    data: &[u8],
    how: WriteMode,
    cred: &Cred,
) -> Result<usize> {
    core.writable()?;
    let mut state = inode.state.write();
    state.file()?;
    if data.is_empty() {
        return Ok(0);
    }
    let offset = if how.append { state.size } else { offset };
    let end = offset.checked_add(data.len() as u64).filter(|end| *end <= FILE_BYTES_MAX);
    let end = end.ok_or(Error::TooLarge)?;
    shed_capability(core, inode, &mut state)?;
    let part = atomic_part(core, inode, &mut state, offset, end)?;
    let mut done = 0;
    for part in data.chunks(part) {
        if done > 0 {
            core.throttle(inode, &mut state)?;
            if core.journals_data() {
                // Longer than the journal: all that can be had is one part after the other.
                write_back(core, inode, &mut state, false)?;
            }
        }
        if let Err(error) = write_part(core, inode, &mut state, offset + done as u64, part, cred) {
            return if done > 0 { Ok(done) } else { Err(error) };
        }
        done += part.len();
    }
    if how.sync_data || how.direct {
        write_back(core, inode, &mut state, !how.sync_metadata)?;
    }
    core.throttle(inode, &mut state)?;
    drop(state);
    core.relieve()?;
    Ok(data.len())
}

/// How many bytes of a write are taken into the cache at once, so that what is longer than the cache does not fill it. With data journaling, one record must hold all pages that the next write-back overwrites: a file that is close
/// to that is written back first.
fn atomic_part<D: BlockPort + WriteLog>(
    core: &Core<D>,
    inode: &Inode<D>,
    state: &mut State<D>,
    offset: u64,
    end: u64,
) -> Result<usize> {
    let capacity = core.journal.capacity() as u64;
    // One more for the tail of the file that a write beyond its end uncovers.
    let pages = (end - 1) / PAGE as u64 - offset / PAGE as u64 + 2;
    if !core.journals_data() {
        return Ok(core.options.dirty_limit().max(WRITE_PART_MIN) * PAGE);
    }
    if state.file()?.dirty.len() as u64 + pages <= capacity {
        return Ok(usize::MAX);
    }
    write_back(core, inode, state, false)?;
    Ok(if pages <= capacity { usize::MAX } else { (capacity as usize - 2) * PAGE })
}

fn write_part<D: BlockPort + WriteLog>(
    core: &Core<D>,
    inode: &Inode<D>,
    state: &mut State<D>,
    offset: u64,
    data: &[u8],
    cred: &Cred,
) -> Result<()> {
    let end = offset + data.len() as u64;
    let size_on_device = state.size_on_device;
    let file = state.file_mut()?;
    let (first, last) = (offset / PAGE as u64, (end - 1) / PAGE as u64);
    let wanted = file.blocks_wanted(first, last);
    file.reserve(core, wanted)?;
    if let Err(error) = prepare_pages(core, file, size_on_device, offset, end) {
        file.unmapped -= wanted.unmapped;
        core.blocks.unreserve(wanted.unmapped);
        return Err(error);
    }
    copy_in(core, file, offset, data);
    state.size = state.size.max(end);
    note_write(core, inode, state, cred);
    Ok(())
}

/// Loads what the write needs of the device's contents: pages covered in part, and the tail that the file grows over.
fn prepare_pages<D: BlockPort + WriteLog>(
    core: &Core<D>,
    file: &mut FileBody,
    size_on_device: u64,
    offset: u64,
    end: u64,
) -> Result<()> {
    if end > size_on_device {
        file.uncover_tail(core, size_on_device)?;
    }
    let (first, last) = (offset / PAGE as u64, (end - 1) / PAGE as u64);
    if !offset.is_multiple_of(PAGE as u64) || end < (first + 1) * PAGE as u64 {
        file.load(core, size_on_device, first, first)?;
    }
    if last != first && !end.is_multiple_of(PAGE as u64) {
        file.load(core, size_on_device, last, last)?;
    }
    Ok(())
}

fn copy_in<D: BlockPort + WriteLog>(core: &Core<D>, file: &mut FileBody, offset: u64, data: &[u8]) {
    // Counted once for all pages, as the frames are taken: a count shared by processors waits for the copy before it.
    let mut frames = core.pages.stock(data.len() / PAGE);
    let threshold = core.keeps_duplicates().then_some(core.options.byte_threshold);
    let (mut added, mut dirtied) = (0, 0);
    let mut done = 0;
    while done < data.len() {
        let at = offset + done as u64;
        let (index, from) = (at / PAGE as u64, (at % PAGE as u64) as usize);
        let len = (PAGE - from).min(data.len() - done);
        let part = &data[done..done + len];
        done += len;
        let whole: Option<&[u8; PAGE]> = part.try_into().ok();
        if let Some(page) = file.pages.get_mut(index) {
            match whole {
                Some(now) => added += page.overwrite(now, threshold, &mut frames),
                None => {
                    page.data_mut(from..from + len, threshold.is_some(), &core.pages).copy_from_slice(part);
                }
            }
            if !std::mem::replace(&mut page.dirty, true) {
                dirtied += 1;
                file.dirty.push(index);
            }
            continue;
        }
        let page = match whole {
            Some(now) => CachedPage::overwritten(frames.copy_of(now)),
            None => {
                let mut page = CachedPage::hole();
                page.data[from..from + len].copy_from_slice(part);
                page.dirty = true;
                page
            }
        };
        added += page.frames();
        dirtied += 1;
        file.dirty.push(index);
        file.pages.insert(index, page);
    }
    drop(frames);
    core.pages.add(added);
    core.pages.dirtied(dirtied);
}

/// Moves the times, clears set-id bits unless a privileged caller wrote, and has the inode written back some time.
pub fn note_write<D: BlockPort + WriteLog>(
    core: &Core<D>,
    inode: &Inode<D>,
    state: &mut State<D>,
    cred: &Cred,
) {
    amphi_names::note_write(core, state, cred);
    state.attributes_dirty = true;
    core.note_dirty(inode);
}

/// Finds data or a hole; see [`amphi_vfs::FileSystem::seek`].
///
/// # Errors
/// As there.
pub fn seek<D: BlockPort + WriteLog>(inode: &Inode<D>, offset: u64, what: Seek) -> Result<u64> {
    let state = inode.state.read();
    let file = state.file()?;
    if offset >= state.size {
        return Err(Error::NoData);
    }
    let mut index = offset / PAGE as u64;
    let end = state.size.div_ceil(PAGE as u64);
    while index < end {
        let is_data = file.pages.get(index).is_some_and(|page| page.dirty);
        let (is_data, run) = match file.tree.map(index) {
            Mapped::At { pages, .. } => (true, pages),
            _ if is_data => (true, 1),
            Mapped::Hole { pages } | Mapped::Unwritten { pages, .. } => {
                let next_dirty = file.dirty.iter().copied().filter(|i| *i > index).min().unwrap_or(u64::MAX);
                (false, pages.min(next_dirty - index))
            }
        };
        if is_data == (what == Seek::Data) {
            return Ok(offset.max(index * PAGE as u64));
        }
        index = index.saturating_add(run);
    }
    match what {
        Seek::Data => Err(Error::NoData),
        Seek::Hole => Ok(state.size),
    }
}
