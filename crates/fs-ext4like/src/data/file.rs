//! Regular files: reading and writing through the page cache.
//!
//! A write changes cached pages only and reserves a block for each that has none; which blocks those will be
//! is decided when they are written back (delayed allocation). Bytes of a page behind the end of the file are
//! zeros in the cache.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use amphi_device::{BlockPort, Completion, Lpa, Structure};
use amphi_vfs::{Cred, Error, Ino, Result, Seek, WriteMode};

use crate::core::Core;
use crate::data::page::{Page, PageBudget};
use crate::data::writeback::{fsync, journal_dirty, write_back};
use crate::format::BLOCK;
use crate::index::extent::{Extents, Mapped};
use crate::index::inode::{Body, Inode, Part, State};
use crate::journal::InFlight;
use crate::journal::buffers::{Kind, SharedBlock, zeros};

/// Largest file in bytes.
pub const FILE_BYTES_MAX: u64 = (u32::MAX as u64 - 1) * BLOCK as u64;
/// Most blocks read by one command.
const COMMAND_BLOCKS: u32 = 64;
/// Most pages that a read brings into the cache before it hands them out: 1 MB.
const READ_PART: usize = 256;
/// The first window of a sequential reader, in blocks, as the kernel has it.
const FIRST_WINDOW: u32 = 4;

/// Who reads in order has more read ahead each time.
#[derive(Clone, Copy, Debug, Default)]
struct ReadAhead {
    /// First block not read ahead yet.
    end: u32,
    /// Blocks of the last window.
    window: u32,
}

/// A regular file's pages.
#[derive(Default)]
pub struct FileBody {
    /// Pages in host DRAM.
    pub pages: BTreeMap<u32, Page>,
    /// Those that are dirty.
    pub dirty: BTreeSet<u32>,
    /// Dirty pages that have no block; as many blocks are reserved.
    pub unmapped: u32,
    /// A write-back on its way.
    pub in_flight: Option<Arc<InFlight>>,
    /// Pages have gone to the journal since they were last written in place.
    pub journaled: bool,
    /// Changes whenever what the device holds of the file changes.
    pub version: u64,
    ahead: ReadAhead,
}

/// A run of blocks to read.
struct Wanted {
    index: u32,
    lba: u32,
    blocks: u32,
}

impl FileBody {
    /// Whether nothing has to be written or is being written.
    pub fn is_clean(&self) -> bool {
        self.dirty.is_empty() && self.in_flight.is_none()
    }

    /// Copies `into.len()` bytes at `offset` out of the cache; false if a page is on the device only.
    fn copy_cached(&self, extents: &Extents, offset: u64, into: &mut [u8]) -> bool {
        let mut done = 0;
        while done < into.len() {
            let at = offset + done as u64;
            let (index, from) = ((at / BLOCK as u64) as u32, (at % BLOCK as u64) as usize);
            let len = (BLOCK - from).min(into.len() - done);
            let part = &mut into[done..done + len];
            match self.pages.get(&index) {
                Some(page) => {
                    part.copy_from_slice(&page.data[from..from + len]);
                    page.used.store(true, Ordering::Relaxed);
                }
                None if matches!(extents.map(index), Mapped::At { unwritten: false, .. }) => return false,
                None => part.fill(0),
            }
            done += len;
        }
        true
    }

    /// What must be read so that the pages `first ..= last` are cached.
    fn missing(&self, extents: &Extents, first: u32, last: u32) -> Vec<Wanted> {
        let mut wanted: Vec<Wanted> = Vec::new();
        let mut index = first;
        while index <= last {
            let (lba, run) = match extents.map(index) {
                Mapped::At { lba, blocks, unwritten: false } => (lba, blocks.min(last - index + 1)),
                Mapped::At { blocks, .. } | Mapped::Hole { blocks } => {
                    index = index.saturating_add(blocks);
                    continue;
                }
            };
            for offset in 0..run {
                if self.pages.contains_key(&(index + offset)) {
                    continue;
                }
                match wanted.last_mut() {
                    Some(last)
                        if last.lba + last.blocks == lba + offset
                            && last.index + last.blocks == index + offset
                            && last.blocks < COMMAND_BLOCKS =>
                    {
                        last.blocks += 1;
                    }
                    _ => wanted.push(Wanted { index: index + offset, lba: lba + offset, blocks: 1 }),
                }
            }
            index += run;
        }
        wanted
    }

    /// Makes a page dirty, once.
    pub fn mark_dirty(&mut self, budget: &PageBudget, index: u32) {
        if let Some(page) = self.pages.get_mut(&index)
            && !page.dirty
        {
            page.dirty = true;
            budget.dirtied();
            self.dirty.insert(index);
        }
    }

    /// Forgets the cached pages `first .. end`, with their reservations. Nothing is in flight.
    pub fn forget<D: BlockPort>(&mut self, core: &Core<D>, extents: &Extents, first: u32, end: u32) {
        let gone: Vec<u32> = self.pages.range(first..end).map(|(index, _)| *index).collect();
        let mut unmapped = 0;
        for index in &gone {
            let Some(page) = self.pages.remove(index) else { continue };
            if page.dirty {
                self.dirty.remove(index);
                core.pages.cleaned(1);
                unmapped += u32::from(matches!(extents.map(*index), Mapped::Hole { .. }));
            }
        }
        core.pages.remove(gone.len());
        self.unmapped -= unmapped;
        core.groups.unreserve(u64::from(unmapped));
    }

    /// Frees about `pages` clean pages, those not used of late first; all of them if `also_used`.
    pub fn drop_clean(&mut self, budget: &PageBudget, pages: usize, also_used: bool) {
        if self.in_flight.is_some() {
            return;
        }
        let mut freed = 0;
        self.pages.retain(|_, page| {
            let keep = page.dirty || freed >= pages || (page.was_used() && !also_used);
            freed += usize::from(!keep);
            keep
        });
        budget.remove(freed);
    }

    /// Blocks to read ahead behind a read of `first ..= last` that missed: the end of what is to be read.
    fn window_end(&mut self, first: u32, last: u32, limit: u32) -> u32 {
        let sequential = first == 0 || first == self.ahead.end;
        self.ahead.window =
            if sequential { (self.ahead.window * 2).clamp(FIRST_WINDOW.min(limit), limit) } else { 0 };
        let end = last.max(first.saturating_add(self.ahead.window.saturating_sub(1)));
        self.ahead.end = end.saturating_add(1);
        end
    }
}

/// Reads runs of blocks, all in flight together.
fn read_runs<D: BlockPort>(core: &Core<D>, wanted: &[Wanted]) -> Result<Vec<(u32, SharedBlock)>> {
    let mut bytes: Vec<Vec<u8>> = wanted.iter().map(|run| vec![0; run.blocks as usize * BLOCK]).collect();
    let mut tickets = Vec::with_capacity(wanted.len());
    for (run, into) in wanted.iter().zip(&mut bytes) {
        let lba = Lpa(u64::from(run.lba));
        tickets.push(core.device.submit_read(lba, into, Structure::Data).map_err(amphi_volume::io_error)?);
    }
    tickets.into_iter().try_for_each(Completion::wait).map_err(amphi_volume::io_error)?;
    let mut pages = Vec::new();
    for (run, bytes) in wanted.iter().zip(&bytes) {
        for (i, block) in bytes.as_chunks::<BLOCK>().0.iter().enumerate() {
            pages.push((run.index + i as u32, Arc::new(Box::new(*block))));
        }
    }
    Ok(pages)
}

/// With data journaling, the newest contents of a block may be on their way through the journal.
fn newest<D: BlockPort>(core: &Core<D>, extents: &Extents, index: u32, read: SharedBlock) -> SharedBlock {
    if core.journals_data()
        && let Mapped::At { lba, .. } = extents.map(index)
        && let Some(buffer) = core.buffers.cached(u64::from(lba))
        && let Ok(state) = buffer.lock(Kind::Data)
    {
        return Arc::clone(&state.data);
    }
    read
}

/// Adds pages that were read to the cache, unless they came there meanwhile.
fn keep<D: BlockPort>(
    core: &Core<D>,
    inode: &Arc<Inode<D>>,
    state: &mut State<D>,
    read: Vec<(u32, SharedBlock)>,
) {
    let size = state.size_on_disk;
    let Part { body: Body::File(file), extents, .. } = &mut state.part else { return };
    for (index, data) in read {
        if file.pages.contains_key(&index) {
            continue;
        }
        let mut data = newest(core, extents, index, data);
        let valid = size.saturating_sub(u64::from(index) * BLOCK as u64).min(BLOCK as u64) as usize;
        let hidden = data[valid..].iter().any(|byte| *byte != 0);
        if hidden {
            Arc::make_mut(&mut data)[valid..].fill(0);
        }
        file.pages.insert(index, Page::clean(data));
        core.pages.add(1);
        if hidden && !core.options.read_only {
            // A crash left bytes behind the end of the file: they are overwritten before it grows.
            file.mark_dirty(&core.pages, index);
            core.dirty.note(inode);
        }
    }
}

/// Brings the pages `first ..= last` into the cache, with the lock held.
///
/// # Errors
/// [`Error::Io`].
pub fn load<D: BlockPort>(
    core: &Core<D>,
    inode: &Arc<Inode<D>>,
    state: &mut State<D>,
    first: u32,
    last: u32,
) -> Result<()> {
    let wanted = state.file()?.missing(&state.extents, first, last);
    if !wanted.is_empty() {
        let read = read_runs(core, &wanted)?;
        keep(core, inode, state, read);
    }
    Ok(())
}

/// Reads at `offset`; see [`amphi_vfs::FileSystem::read`].
///
/// # Errors
/// As there.
pub fn read<D: BlockPort>(
    core: &Core<D>,
    ino: Ino,
    offset: u64,
    into: &mut [u8],
    direct: bool,
) -> Result<usize> {
    let inode = core.inode(ino)?;
    if direct {
        // What is cached and dirty is written first; then, as for a page not cached, the device answers.
        inode.state.read().file()?;
        write_back(core, &inode)?;
        drop_range(core, &inode, offset, into.len());
    }
    let part_max = READ_PART.min(core.options.page_cache_pages.div_ceil(2)) * BLOCK;
    let (done, moves_atime) = loop {
        let len = {
            let state = inode.state.read();
            let file = state.file()?;
            let len = state.size.saturating_sub(offset).min(into.len() as u64) as usize;
            if len == 0 || file.copy_cached(&state.extents, offset, &mut into[..len]) {
                break (len, amphi_names::read_moves_atime(core, &state));
            }
            len
        };
        if len > part_max {
            break read_long(core, &inode, offset, into, part_max)?;
        }
        let (first, last) = (offset / BLOCK as u64, (offset + len as u64 - 1) / BLOCK as u64);
        let ahead = if direct { 0 } else { core.options.read_ahead_blocks };
        fetch(core, &inode, first as u32, last as u32, ahead)?;
    };
    if direct {
        drop_range(core, &inode, offset, into.len());
    }
    if moves_atime {
        amphi_names::note_read(core, &inode);
    }
    core.relieve(&inode)?;
    Ok(done)
}

/// Reads more than is brought into the cache at once, part by part. The inode is locked from the first to the
/// last, so that each write is seen whole or not at all. Returns the length, and whether the access time moves.
fn read_long<D: BlockPort>(
    core: &Core<D>,
    inode: &Arc<Inode<D>>,
    offset: u64,
    into: &mut [u8],
    part_max: usize,
) -> Result<(usize, bool)> {
    let mut state = inode.state.write();
    let len = state.size.saturating_sub(offset).min(into.len() as u64) as usize;
    let mut done = 0;
    while done < len {
        let at = offset + done as u64;
        let part = part_max.min(len - done);
        load(
            core,
            inode,
            &mut state,
            (at / BLOCK as u64) as u32,
            ((at + part as u64 - 1) / BLOCK as u64) as u32,
        )?;
        let Part { body: Body::File(file), extents, .. } = &mut state.part else { break };
        let complete = file.copy_cached(extents, at, &mut into[done..done + part]);
        debug_assert!(complete, "every written page of the part was loaded");
        done += part;
        if core.pages.excess() > 0 {
            file.drop_clean(&core.pages, usize::MAX, true);
        }
    }
    Ok((len, amphi_names::read_moves_atime(core, &state)))
}

/// Reads missing pages without holding the inode, and keeps them if the file has not changed on the device
/// meanwhile.
fn fetch<D: BlockPort>(
    core: &Core<D>,
    inode: &Arc<Inode<D>>,
    first: u32,
    last: u32,
    ahead: u32,
) -> Result<()> {
    let (wanted, version) = {
        let mut state = inode.state.write();
        let end = state.size.div_ceil(BLOCK as u64) as u32;
        let Part { body: Body::File(file), extents, .. } = &mut state.part else { return Ok(()) };
        let last = file.window_end(first, last, ahead).min(end.saturating_sub(1)).max(last);
        (file.missing(extents, first, last), file.version)
    };
    let read = read_runs(core, &wanted)?;
    let mut state = inode.state.write();
    if state.file()?.version == version {
        keep(core, inode, &mut state, read);
    }
    Ok(())
}

/// Drops clean pages of a range from the cache.
pub fn drop_range<D: BlockPort>(core: &Core<D>, inode: &Inode<D>, offset: u64, len: usize) {
    let mut state = inode.state.write();
    let Part { body: Body::File(file), extents, .. } = &mut state.part else { return };
    if file.in_flight.is_some() {
        return;
    }
    let (first, end) = (offset / BLOCK as u64, offset.saturating_add(len as u64).div_ceil(BLOCK as u64));
    let end = end.min(u64::from(u32::MAX)) as u32;
    let clean: Vec<u32> = file
        .pages
        .range(first.min(u64::from(end)) as u32..end)
        .filter(|(_, page)| !page.dirty)
        .map(|(i, _)| *i)
        .collect();
    for index in clean {
        file.forget(core, extents, index, index + 1);
    }
}

/// Writes at `offset` or the end; see [`amphi_vfs::FileSystem::write`].
///
/// # Errors
/// As there.
pub fn write<D: BlockPort>(
    core: &Core<D>,
    ino: Ino,
    offset: u64,
    data: &[u8],
    how: WriteMode,
    cred: &Cred,
) -> Result<usize> {
    let inode = core.inode(ino)?;
    core.writable()?;
    let mut state = inode.state.write();
    state.file()?;
    if data.is_empty() {
        return Ok(0);
    }
    let offset = if how.append { state.size } else { offset };
    let end = offset.checked_add(data.len() as u64).filter(|end| *end <= FILE_BYTES_MAX);
    let end = end.ok_or(Error::TooLarge)?;
    let (first, last) = ((offset / BLOCK as u64) as u32, ((end - 1) / BLOCK as u64) as u32);
    let unmapped = holes_to_fill(&state, first, last)?;
    let mut reserved = core.reserve(u64::from(unmapped))?;
    load_edges(core, &inode, &mut state, offset, end)?;
    note_write(core, &inode, &mut state, cred)?;
    reserved.take(u64::from(unmapped));
    drop(reserved);
    copy_in(core, &mut state, offset, data)?;
    let file = state.file_mut()?;
    file.unmapped += unmapped;
    state.size = state.size.max(end);
    core.dirty.note(&inode);
    if core.journals_data() {
        journal_dirty(core, &inode, &mut state)?;
    }
    drop(state);
    if how.direct {
        write_back(core, &inode)?;
        drop_range(core, &inode, offset, data.len());
    }
    if how.sync_data {
        fsync(core, &inode, !how.sync_metadata)?;
    }
    core.relieve(&inode)?;
    Ok(data.len())
}

/// Pages of a range that have neither a block nor one reserved.
fn holes_to_fill<D: BlockPort>(state: &State<D>, first: u32, last: u32) -> Result<u32> {
    let file = state.file()?;
    let (mut index, mut holes) = (first, 0);
    while index <= last {
        let run = match state.extents.map(index) {
            Mapped::At { blocks, .. } => blocks,
            Mapped::Hole { blocks } => {
                let end = last.min(index.saturating_add(blocks - 1));
                holes += end - index + 1 - file.dirty.range(index..=end).count() as u32;
                blocks
            }
        };
        index = index.saturating_add(run);
    }
    Ok(holes)
}

/// Brings into the cache what a write changes in part only, and the last page of a file that will grow.
fn load_edges<D: BlockPort>(
    core: &Core<D>,
    inode: &Arc<Inode<D>>,
    state: &mut State<D>,
    offset: u64,
    end: u64,
) -> Result<()> {
    let size = state.size;
    if end > size && !size.is_multiple_of(BLOCK as u64) {
        let last = (size / BLOCK as u64) as u32;
        load(core, inode, state, last, last)?;
    }
    for edge in [offset, end] {
        // The end's page matters only if there is something of the file behind it.
        if !edge.is_multiple_of(BLOCK as u64) && (edge == offset || end < size) {
            let index = (edge / BLOCK as u64) as u32;
            load(core, inode, state, index, index)?;
        }
    }
    Ok(())
}

/// What every change of contents does to the inode: times, set-id bits, capabilities. Within one tick of the
/// clock only the first one writes it.
///
/// # Errors
/// [`Error::Io`], [`Error::ReadOnly`].
pub fn note_write<D: BlockPort>(
    core: &Core<D>,
    inode: &Inode<D>,
    state: &mut State<D>,
    cred: &Cred,
) -> Result<()> {
    amphi_names::shed_capability(core, inode, state)?;
    let before = (state.mtime, state.ctime, state.mode);
    amphi_names::note_write(core, state, cred);
    if before != (state.mtime, state.ctime, state.mode) {
        let mut handle = core.handle(6)?;
        handle.write_inode(inode, state, false)?;
        handle.finish();
    }
    Ok(())
}

/// Copies a write's data into pages, which become dirty.
fn copy_in<D: BlockPort>(core: &Core<D>, state: &mut State<D>, offset: u64, data: &[u8]) -> Result<()> {
    let file = state.file_mut()?;
    let mut done = 0;
    while done < data.len() {
        let at = offset + done as u64;
        let (index, from) = ((at / BLOCK as u64) as u32, (at % BLOCK as u64) as usize);
        let part = &data[done..data.len().min(done + BLOCK - from)];
        let page = file.pages.entry(index).or_insert_with(|| {
            core.pages.add(1);
            Page::clean(zeros())
        });
        Arc::make_mut(&mut page.data)[from..from + part.len()].copy_from_slice(part);
        page.used.store(true, Ordering::Relaxed);
        file.mark_dirty(&core.pages, index);
        done += part.len();
    }
    Ok(())
}

/// Makes a part of a page read as zeros. Nothing is in flight.
///
/// # Errors
/// [`Error::Io`].
pub fn zero_in_page<D: BlockPort>(
    core: &Core<D>,
    inode: &Arc<Inode<D>>,
    state: &mut State<D>,
    index: u32,
    bytes: std::ops::Range<usize>,
) -> Result<()> {
    load(core, inode, state, index, index)?;
    let file = state.file_mut()?;
    if let Some(page) = file.pages.get_mut(&index) {
        Arc::make_mut(&mut page.data)[bytes].fill(0);
        file.mark_dirty(&core.pages, index);
        core.dirty.note(inode);
    }
    Ok(())
}

/// Finds data or a hole; see [`amphi_vfs::FileSystem::seek`].
///
/// # Errors
/// As there.
pub fn seek<D: BlockPort>(inode: &Inode<D>, offset: u64, what: Seek) -> Result<u64> {
    let state = inode.state.read();
    let file = state.file()?;
    if offset >= state.size {
        return Err(Error::NoData);
    }
    let mut index = (offset / BLOCK as u64) as u32;
    let end = state.size.div_ceil(BLOCK as u64) as u32;
    while index < end {
        let (is_data, run) = match state.extents.map(index) {
            Mapped::At { blocks, unwritten: false, .. } => (true, blocks),
            // What is cached and has no written block is dirty, or on its way to one.
            _ if file.pages.contains_key(&index) => (true, 1),
            Mapped::At { blocks, .. } | Mapped::Hole { blocks } => {
                let next_cached = file.pages.range(index..).next().map_or(u32::MAX, |(next, _)| *next);
                (false, blocks.min(next_cached - index))
            }
        };
        if is_data == (what == Seek::Data) {
            return Ok(offset.max(u64::from(index) * BLOCK as u64));
        }
        index = index.saturating_add(run);
    }
    match what {
        Seek::Data => Err(Error::NoData),
        Seek::Hole => Ok(state.size),
    }
}
