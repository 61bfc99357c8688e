//! Contents of files: pages in host memory, by file in a radix tree (AU-11), and how many there may be.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use amphi_device::{BlockPort, Completion, MemoryArea, Structure};
use amphi_names::{note_write, read_moves_atime, regular, shed_capability};
use amphi_vfs::{Cred, Error, Result, WriteMode};
use amphi_volume::io_error;

use crate::core::Core;
use crate::format::{Address, FILE_BYTES_MAX, PAGE};
use crate::inode::{Inode, Page, Part, State};
use crate::nodes::slot_of;
use crate::planted::{self, Bug};
use crate::writeback::{Edit, write_back};

/// Most pages that one turn of a read brings into memory.
const PAGES_AT_A_TIME: u64 = 256;

/// Calls `body` with each page that a range of bytes touches, and the part of it.
fn by_page(range: Range<u64>, mut body: impl FnMut(u64, Range<usize>)) {
    let mut at = range.start;
    while at < range.end {
        let within = at as usize % PAGE;
        let len = (PAGE - within).min((range.end - at) as usize);
        body(at / PAGE as u64, within..within + len);
        at += len as u64;
    }
}

/// Reads at `offset`. Returns the number of bytes.
///
/// # Errors
/// As [`amphi_vfs::FileSystem::read`].
pub fn read<D: BlockPort + MemoryArea>(
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
        let most = (PAGES_AT_A_TIME * PAGE as u64 - at % PAGE as u64) as usize;
        let len = (into.len() - done).min(most);
        let part = &mut into[done..done + len];
        let read = copy(&inode.state.read(), at, part);
        let read = match read {
            Some(read) => read,
            None => {
                let mut state = inode.state.write();
                let len = state.size.saturating_sub(at).min(len as u64);
                load_pages(core, inode, &mut state, at..at + len)?;
                let read = copy(&state, at, &mut part[..len as usize]).unwrap_or(0);
                if planted::has(Bug::PagesForgotten) {
                    core.drop_clean_pages_of(&mut state.part);
                }
                read
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
fn copy<D: BlockPort + MemoryArea>(state: &State<D>, offset: u64, into: &mut [u8]) -> Option<usize> {
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

/// Brings the pages of a range of bytes into memory that are not there.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn load_pages<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    inode: &Inode<D>,
    state: &mut State<D>,
    bytes: Range<u64>,
) -> Result<()> {
    let pages = bytes.start / PAGE as u64..bytes.end.div_ceil(PAGE as u64);
    let missing: Vec<_> = pages.filter(|page| state.part.pages.get(*page).is_none()).collect();
    let (Some(first), Some(last)) = (missing.first(), missing.last()) else { return Ok(()) };
    let domain = core.domain(inode.ino);
    let _gate = domain.gate.read();
    let addresses = core.addresses(domain, (inode.ino, state), *first, last + 1)?;
    let mut loaded: Vec<_> = missing
        .iter()
        .map(|page| (*page, addresses[(page - first) as usize].block(), vec![0; PAGE].into_boxed_slice()))
        .collect();
    let mut tickets = Vec::new();
    for (_, block, bytes) in &mut loaded {
        if let Some(block) = block {
            tickets
                .push(core.device.submit_read(core.lpa(*block), bytes, Structure::Data).map_err(io_error)?);
        }
    }
    for ticket in tickets {
        ticket.wait().map_err(io_error)?;
    }
    core.pages.fetch_add(loaded.len(), Ordering::Relaxed);
    for (page, _, bytes) in loaded {
        state.part.pages.insert(page, Page { bytes, dirty: false, promised: false });
    }
    Ok(())
}

/// Writes all of `data`.
///
/// # Errors
/// As [`amphi_vfs::FileSystem::write`].
pub fn write<D: BlockPort + MemoryArea>(
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
        promise(core, inode, &mut state, offset..end)?;
        fill(inode, &mut state, offset, data)?;
        state.size = state.size.max(end);
        note_write(core, &mut state, cred);
        state.part.changed = true;
        core.note_dirty(inode);
        if mode.sync_data || mode.sync_metadata || mode.direct {
            write_back(core, inode, &mut state, &Edit::default())?;
        }
    }
    core.relieve(inode)?;
    Ok(data.len())
}

/// Brings the pages at both ends of a range that is written in part into memory, and has every page of it
/// promised a block that has none.
fn promise<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    inode: &Inode<D>,
    state: &mut State<D>,
    bytes: Range<u64>,
) -> Result<()> {
    for edge in [bytes.start, bytes.end] {
        // What lies behind the end of the file is zeros.
        if !edge.is_multiple_of(PAGE as u64) && edge / PAGE as u64 * PAGE as u64 <= state.size {
            load_pages(core, inode, state, edge..edge + 1)?;
        }
    }
    let pages = bytes.start / PAGE as u64..bytes.end.div_ceil(PAGE as u64);
    let addresses = {
        let domain = core.domain(inode.ino);
        let _gate = domain.gate.read();
        core.addresses(domain, (inode.ino, state), pages.start, pages.end)?
    };
    let is_dirty = |page: u64| state.part.pages.get(page).is_some_and(|page| page.dirty);
    let wanted: Vec<_> = pages
        .clone()
        .zip(&addresses)
        .filter(|(page, address)| address.is_hole() && !is_dirty(*page))
        .map(|(page, _)| page)
        .collect();
    promise_nodes(core, &mut state.part, pages.clone(), wanted.len() as u64)?;
    core.pages.fetch_add(
        pages.clone().filter(|page| state.part.pages.get(*page).is_none()).count(),
        Ordering::Relaxed,
    );
    let mut wanted = wanted.into_iter().peekable();
    for page in pages {
        let promised = wanted.next_if_eq(&page).is_some();
        if state.part.pages.get(page).is_none() {
            let bytes = vec![0; PAGE].into();
            state.part.pages.insert(page, Page { bytes, dirty: false, promised: false });
        }
        if let Some(cached) = state.part.pages.get_mut(page) {
            core.dirty_pages.fetch_add(usize::from(!cached.dirty), Ordering::Relaxed);
            cached.dirty = true;
            cached.promised |= promised;
        }
        state.part.dirty.insert(page);
        state.part.promised += u64::from(promised);
    }
    Ok(())
}

/// Promises blocks for so many pages, and for nodes of a range of pages that are not there.
///
/// # Errors
/// [`Error::NoSpace`]; then nothing is promised.
pub fn promise_nodes<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    part: &mut Part,
    pages: Range<u64>,
    blocks: u64,
) -> Result<()> {
    let indices = slot_of(pages.start).0..slot_of(pages.end - 1).0 + 1;
    let new = |index: &u32| !part.nodes.contains_key(index) && !part.promised_nodes.contains(index);
    let nodes: Vec<_> = indices.filter(new).collect();
    core.space.promise(blocks + nodes.len() as u64)?;
    part.promised_nodes.extend(nodes);
    Ok(())
}

/// Copies data into pages, all of which are in memory.
fn fill<D: BlockPort + MemoryArea>(
    inode: &Inode<D>,
    state: &mut State<D>,
    offset: u64,
    data: &[u8],
) -> Result<()> {
    let mut rest = data;
    let mut all = true;
    by_page(offset..offset + data.len() as u64, |page, range| {
        let (part, behind) = rest.split_at(range.len());
        match state.part.pages.get_mut(page) {
            Some(page) => page.bytes[range].copy_from_slice(part),
            None => all = false,
        }
        rest = behind;
    });
    if all { Ok(()) } else { Err(Error::Stale(inode.ino)) }
}

impl<D: BlockPort + MemoryArea> Core<D> {
    /// Drops pages that the device has, too.
    pub fn drop_clean_pages_of(&self, part: &mut Part) {
        let before = part.pages.len();
        part.pages.retain(|_, page| page.dirty);
        self.pages.fetch_sub(before - part.pages.len(), Ordering::Relaxed);
    }

    /// Drops the pages `range`, dirty or not, and what they were promised.
    pub fn drop_pages(&self, part: &mut Part, range: Range<u64>) {
        let (before, mut promised, mut dirty) = (part.pages.len(), 0, 0);
        part.pages.retain(|number, page| {
            let goes = range.contains(&number);
            promised += u64::from(goes && page.promised);
            dirty += usize::from(goes && page.dirty);
            !goes
        });
        part.dirty.retain(|page| !range.contains(page));
        part.promised -= promised;
        self.pages.fetch_sub(before - part.pages.len(), Ordering::Relaxed);
        self.dirty_pages.fetch_sub(dirty, Ordering::Relaxed);
        let kept: std::collections::BTreeSet<_> = part.dirty.iter().map(|page| slot_of(*page).0).collect();
        let nodes = part.promised_nodes.len();
        part.promised_nodes.retain(|index| kept.contains(index));
        self.space.give_back(promised + (nodes - part.promised_nodes.len()) as u64);
    }

    /// Drops all pages of a file that goes.
    pub fn forget_pages(&self, state: &mut State<D>) {
        self.drop_pages(&mut state.part, 0..u64::MAX);
    }

    /// Drops what a cut file has behind its end in memory.
    pub fn cut_pages(&self, state: &mut State<D>, size: u64) {
        self.drop_pages(&mut state.part, size.div_ceil(PAGE as u64)..u64::MAX);
        if let Some(page) = state.part.pages.get_mut(size / PAGE as u64) {
            page.bytes[size as usize % PAGE..].fill(0);
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

/// Writes a file's dirty pages and its inode back.
///
/// # Errors
/// As [`write_back`].
pub fn write_back_file<D: BlockPort + MemoryArea>(core: &Core<D>, inode: &Arc<Inode<D>>) -> Result<()> {
    let mut state = inode.state.write();
    if state.gone || regular(inode.file_type).is_err() {
        return Ok(());
    }
    write_back(core, inode, &mut state, &Edit::default())
}

/// Whether a page of a file has data, as far as `seek` is concerned.
pub fn has_data<D: BlockPort + MemoryArea>(state: &State<D>, page: u64, address: Address) -> bool {
    address.block().is_some() || state.part.pages.get(page).is_some_and(|page| page.dirty)
}

/// Makes bytes of one page read as zeros; a page that is nowhere stays so.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn zero_in_page<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    inode: &Inode<D>,
    state: &mut State<D>,
    bytes: Range<u64>,
) -> Result<()> {
    let page = bytes.start / PAGE as u64;
    let address = {
        let domain = core.domain(inode.ino);
        let _gate = domain.gate.read();
        core.addresses(domain, (inode.ino, state), page, page + 1)?[0]
    };
    if !has_data(state, page, address) {
        return Ok(());
    }
    load_pages(core, inode, state, bytes.start..bytes.start + 1)?;
    if let Some(cached) = state.part.pages.get_mut(page) {
        let start = bytes.start as usize % PAGE;
        cached.bytes[start..start + (bytes.end - bytes.start) as usize].fill(0);
        core.dirty_pages.fetch_add(usize::from(!cached.dirty), Ordering::Relaxed);
        cached.dirty = true;
        state.part.dirty.insert(page);
    }
    Ok(())
}

/// Makes pages with data read as zeros, in their blocks.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn zero_pages<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    inode: &Inode<D>,
    state: &mut State<D>,
    pages: Range<u64>,
) -> Result<()> {
    for page in pages {
        let start = page * PAGE as u64;
        zero_in_page(core, inode, state, start..start + PAGE as u64)?;
    }
    Ok(())
}
