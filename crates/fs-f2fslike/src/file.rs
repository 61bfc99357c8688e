//! Contents of files: pages in host memory, and how many there may be.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use amphi_device::{BlockPort, Completion, Structure};
use amphi_names::{Change, Changed, Need, Store, note_write, read_moves_atime, regular, shed_capability};
use amphi_vfs::{Cred, Error, Result, WriteMode};
use amphi_volume::io_error;

use crate::change::Changing;
use crate::checkpoint;
use crate::core::Core;
use crate::format::{FILE_PAGES_MAX, PAGE};
use crate::inode::{Inode, Page, Part, State};
use crate::planted::{self, Bug};
use crate::writeback::{write_back, write_back_file};

/// Longest file in bytes.
pub const FILE_BYTES_MAX: u64 = FILE_PAGES_MAX * PAGE_BYTES;
/// Most pages that one turn of a read brings into memory.
const PAGES_AT_A_TIME: u64 = 256;
const PAGE_BYTES: u64 = PAGE as u64;

/// Calls `body` with each page that a range of bytes touches, and the part of it.
fn by_page(range: Range<u64>, mut body: impl FnMut(u64, Range<usize>)) {
    let mut at = range.start;
    while at < range.end {
        let within = at as usize % PAGE;
        let len = (PAGE - within).min((range.end - at) as usize);
        body(at / PAGE_BYTES, within..within + len);
        at += len as u64;
    }
}

/// Reads at `offset`. Returns the number of bytes.
///
/// # Errors
/// As [`amphi_vfs::FileSystem::read`].
pub fn read<D: BlockPort>(
    core: &Core<D>,
    inode: &Arc<Inode<D>>,
    offset: u64,
    into: &mut [u8],
) -> Result<usize> {
    regular(inode.file_type)?;
    let mut done = 0;
    let moves_atime = read_moves_atime(core, &inode.state.read());
    while done < into.len() {
        let at = offset + done as u64;
        let most = (PAGES_AT_A_TIME * PAGE_BYTES - at % PAGE_BYTES) as usize;
        let len = (into.len() - done).min(most);
        let part = &mut into[done..done + len];
        let read = copy(&inode.state.read(), at, part);
        let read = match read {
            Some(read) => read,
            None => {
                let mut state = inode.state.write();
                let len = state.size.saturating_sub(at).min(len as u64);
                load_pages(core, inode, &mut state, at..at + len)?;
                copy(&state, at, &mut part[..len as usize]).unwrap_or(0)
            }
        };
        done += read;
        if read < len {
            break;
        }
    }
    if moves_atime {
        amphi_names::note_read(core, inode);
    }
    core.relieve(inode)?;
    Ok(done)
}

/// Copies what is in memory. None if a page is not.
fn copy<D: BlockPort>(state: &State<D>, offset: u64, into: &mut [u8]) -> Option<usize> {
    let len = state.size.saturating_sub(offset).min(into.len() as u64) as usize;
    let mut rest = &mut into[..len];
    let mut all = true;
    by_page(offset..offset + len as u64, |page, range| {
        let (part, behind) = std::mem::take(&mut rest).split_at_mut(range.len());
        match state.part.pages.get(page) {
            Some(page) => part.copy_from_slice(&page.bytes[range]),
            None => all = false,
        }
        rest = behind;
    });
    all.then_some(len)
}

/// Brings the pages of a range of bytes into memory that are not there. What the device has behind the end of
/// the file is no part of it: it becomes zeros, which are written before the file grows over them.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn load_pages<D: BlockPort>(
    core: &Core<D>,
    inode: &Arc<Inode<D>>,
    state: &mut State<D>,
    bytes: Range<u64>,
) -> Result<()> {
    let pages = bytes.start / PAGE_BYTES..bytes.end.div_ceil(PAGE_BYTES);
    let missing: Vec<_> = pages.filter(|page| state.part.pages.get(*page).is_none()).collect();
    let (Some(first), Some(last)) = (missing.first(), missing.last()) else { return Ok(()) };
    let _gate = core.domain.gate.read();
    let addresses = core.addresses(inode.ino.0 as u32, *first, last + 1)?;
    let mut loaded: Vec<_> = missing
        .iter()
        .map(|page| (*page, addresses[(page - first) as usize].block(), vec![0; PAGE].into_boxed_slice()))
        .collect();
    let mut tickets = Vec::new();
    for (_, block, bytes) in &mut loaded {
        if let Some(block) = block {
            let sent = core.ground.device.submit_read(core.ground.lpa(*block), bytes, Structure::Data);
            tickets.push(sent.map_err(io_error)?);
        }
    }
    for ticket in tickets {
        ticket.wait().map_err(io_error)?;
    }
    core.pages.fetch_add(loaded.len(), Ordering::Relaxed);
    for (page, _, mut bytes) in loaded {
        let valid = state.size.saturating_sub(page * PAGE_BYTES).min(PAGE_BYTES) as usize;
        let hidden = bytes[valid..].iter().any(|byte| *byte != 0) && !planted::has(Bug::TailShown);
        if hidden {
            bytes[valid..].fill(0);
        }
        state.part.pages.insert(page, Page { bytes, dirty: false });
        if hidden && !core.options.read_only {
            core.mark_dirty(&mut state.part, page);
            core.note_dirty(inode);
        }
    }
    Ok(())
}

/// Writes all of `data`.
///
/// # Errors
/// As [`amphi_vfs::FileSystem::write`].
pub fn write<D: BlockPort>(
    core: &Core<D>,
    inode: &Arc<Inode<D>>,
    offset: u64,
    data: &[u8],
    mode: WriteMode,
    cred: &Cred,
) -> Result<usize> {
    regular(inode.file_type)?;
    core.names.health.writable()?;
    if data.is_empty() {
        return Ok(0);
    }
    {
        let mut state = inode.state.write();
        if state.gone {
            return Err(Error::Stale(inode.ino));
        }
        let offset = if mode.append { state.size } else { offset };
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= FILE_BYTES_MAX);
        let end = end.ok_or(Error::TooLarge)?;
        shed_capability(core, inode, &mut state)?;
        for edge in [state.size.min(end), offset, end] {
            // What lies behind the end of the file is zeros.
            if !edge.is_multiple_of(PAGE_BYTES) && edge / PAGE_BYTES * PAGE_BYTES <= state.size {
                load_pages(core, inode, &mut state, edge..edge + 1)?;
            }
        }
        let pages = offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES);
        hold(core, inode, &mut state, pages.clone())?;
        for page in pages {
            if state.part.pages.get(page).is_none() {
                state.part.pages.insert(page, Page { bytes: vec![0; PAGE].into(), dirty: false });
                core.pages.fetch_add(1, Ordering::Relaxed);
            }
            core.mark_dirty(&mut state.part, page);
        }
        let mut rest = data;
        by_page(offset..end, |page, range| {
            let (part, behind) = rest.split_at(range.len());
            if let Some(page) = state.part.pages.get_mut(page) {
                page.bytes[range].copy_from_slice(part);
            }
            rest = behind;
        });
        state.size = state.size.max(end);
        note_write(core, &mut state, cred);
        state.part.changed = true;
        core.note_dirty(inode);
        if mode.direct {
            write_back(core, inode, &mut state)?;
        }
    }
    if mode.sync_data || mode.sync_metadata {
        checkpoint::fsync(core, inode)?;
    }
    core.relieve(inode)?;
    Ok(data.len())
}

/// Holds a block for each page of a range that has none.
///
/// # Errors
/// [`Error::NoSpace`]; then nothing has changed. [`Error::Corrupt`], [`Error::Io`].
pub fn hold<D: BlockPort>(
    core: &Core<D>,
    inode: &Inode<D>,
    state: &mut State<D>,
    pages: Range<u64>,
) -> Result<()> {
    core.balance((pages.end - pages.start) as usize / PAGE_NODES + 4)?;
    let _gate = core.domain.gate.read();
    let ino = inode.ino.0 as u32;
    let wanted = core.lacking(ino, pages.clone())?;
    core.space.promise(wanted)?;
    let held = core.hold(ino, pages).and_then(|(held, made)| {
        state.part.blocks += held;
        // What the nodes name and what the inode counts come to the device together.
        if held + made > 0 {
            core.put_inode(inode, state)?;
        }
        Ok(held + made)
    });
    if let Err(error) = &held {
        core.names.health.fail(error);
    }
    core.space.give_back(wanted.saturating_sub(held?));
    Ok(())
}

/// Pages for which one node is made, at the least.
const PAGE_NODES: usize = 512;

/// See [`Store::resize`].
///
/// # Errors
/// As there.
pub fn resize<D: BlockPort>(
    core: &Core<D>,
    inode: &Arc<Inode<D>>,
    state: &mut State<D>,
    size: u64,
    apply: impl FnOnce(&mut Changing<'_, D>, &mut State<D>) -> Result<()>,
) -> Result<()> {
    if size > FILE_BYTES_MAX {
        return Err(Error::TooLarge);
    }
    if size > state.size && !state.size.is_multiple_of(PAGE_BYTES) {
        let end = state.size;
        load_pages(core, inode, state, end..end + 1)?;
    }
    if size > state.size || state.part.stored_size < size {
        // What lies before the new end must be there when it counts.
        write_back(core, inode, state)?;
    }
    let mut change = core.begin(&Need::NOTHING)?;
    if size < state.size {
        core.cut_pages(&mut state.part, size);
        core.note_dirty(inode);
        let cleared = core.cut(inode.ino.0 as u32, size.div_ceil(PAGE_BYTES));
        if let Err(error) = &cleared {
            core.names.health.fail(error);
        }
        state.part.blocks = state.part.blocks.saturating_sub(cleared?);
    }
    apply(&mut change, state)?;
    state.size = size;
    state.part.stored_size = size;
    change.write_inode(inode, state, Changed::Contents)?;
    change.commit()?;
    if state.part.dirty.is_empty() {
        core.note_clean(inode.ino);
    }
    Ok(())
}

impl<D: BlockPort> Core<D> {
    /// A page that is in memory will have to be written.
    pub fn mark_dirty(&self, part: &mut Part, page: u64) {
        if let Some(cached) = part.pages.get_mut(page)
            && !std::mem::replace(&mut cached.dirty, true)
        {
            self.dirty_pages.fetch_add(1, Ordering::Relaxed);
            part.dirty.insert(page);
        }
    }

    /// Drops pages that the device has, too.
    pub fn drop_clean_pages_of(&self, part: &mut Part) {
        let before = part.pages.len();
        part.pages.retain(|_, page| page.dirty);
        self.pages.fetch_sub(before - part.pages.len(), Ordering::Relaxed);
    }

    /// Drops the pages `range`, dirty or not.
    pub fn drop_pages(&self, part: &mut Part, range: Range<u64>) {
        let (before, mut dirty) = (part.pages.len(), 0);
        part.pages.retain(|number, page| {
            let goes = range.contains(&number);
            dirty += usize::from(goes && page.dirty);
            !goes
        });
        part.dirty.retain(|page| !range.contains(page));
        self.pages.fetch_sub(before - part.pages.len(), Ordering::Relaxed);
        self.dirty_pages.fetch_sub(dirty, Ordering::Relaxed);
    }

    /// Drops all pages of a file that goes.
    pub fn forget_pages(&self, part: &mut Part) {
        self.drop_pages(part, 0..u64::MAX);
    }

    /// Drops what a cut file has behind its end in memory.
    fn cut_pages(&self, part: &mut Part, size: u64) {
        self.drop_pages(part, size.div_ceil(PAGE_BYTES)..u64::MAX);
        let last = size / PAGE_BYTES;
        let Some(page) = part.pages.get_mut(last) else { return };
        let tail = &mut page.bytes[size as usize % PAGE..];
        if tail.iter().any(|byte| *byte != 0) && !planted::has(Bug::TailShown) {
            tail.fill(0);
            // The device has it yet.
            self.mark_dirty(part, last);
        }
    }

    /// After a read or write: keeps the number of pages within its limits. The caller has no lock.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn relieve(&self, inode: &Arc<Inode<D>>) -> Result<()> {
        let limit = self.options.page_cache_pages;
        if self.dirty_pages.load(Ordering::Relaxed) > limit / 2 {
            write_back_file(self, inode)?;
            let others: Vec<_> = self.dirty.lock().values().cloned().collect();
            for other in others {
                if self.dirty_pages.load(Ordering::Relaxed) <= limit / 4 {
                    break;
                }
                write_back_file(self, &other)?;
            }
        }
        if self.pages.load(Ordering::Relaxed) > limit {
            let start = self.sweep.load(Ordering::Relaxed);
            let next = self.names.cache.visit(start, |inode| {
                if let Some(mut state) = inode.state.try_write() {
                    self.drop_clean_pages_of(&mut state.part);
                }
                let enough = self.pages.load(Ordering::Relaxed) <= limit - limit / 8;
                if enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            self.sweep.store(next, Ordering::Relaxed);
        }
        Ok(())
    }
}
