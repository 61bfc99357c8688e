//! Contents of files: what is written to pages in host memory, and the blocks that they are promised.

use std::ops::Range;
use std::sync::Arc;

use amphi_device::{BlockPort, MemoryArea};
use amphi_names::{note_write, regular, shed_capability};
use amphi_segments::files::{self, FileCache, FilePages, Files, relieve};
use amphi_vfs::{Cred, Error, Result, WriteMode};

use crate::core::Core;
use crate::format::{Address, FILE_BYTES_MAX, PAGE};
use crate::inode::{Inode, Part, State};
use crate::nodes::slot_of;
use crate::planted::{self, Bug};
use crate::writeback::{Edit, write_back};

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
    let missing: Vec<_> = pages.filter(|page| state.part.file.pages.get(*page).is_none()).collect();
    let (Some(first), Some(last)) = (missing.first(), missing.last()) else { return Ok(()) };
    let domain = core.domain(inode.ino);
    let _gate = domain.gate.read();
    let addresses = core.addresses(domain, (inode.ino, state), *first, last + 1)?;
    let block = |page: &u64| (*page, addresses[(page - first) as usize].block());
    let wanted: Vec<_> = missing.iter().map(block).collect();
    for (page, bytes) in core.ground.read_pages(&wanted)? {
        core.cache.insert(&mut state.part.file, page, bytes);
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
        if !state.part.file.fill(offset, data) {
            return Err(Error::Stale(inode.ino));
        }
        state.size = state.size.max(end);
        note_write(core, &mut state, cred);
        state.part.changed = true;
        core.cache.note_dirty(inode);
        if mode.sync_data || mode.sync_metadata || mode.direct {
            write_back(core, inode, &mut state, &Edit::default())?;
        }
    }
    relieve(core, inode)?;
    Ok(data.len())
}

/// Brings the pages at both ends of a range that is written in part into memory, and has every page of it
/// promised a block that has none.
fn promise<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    inode: &Arc<Inode<D>>,
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
    let is_dirty = |page: u64| state.part.file.pages.get(page).is_some_and(|page| page.dirty);
    let wanted: Vec<_> = pages
        .clone()
        .zip(&addresses)
        .filter(|(page, address)| address.is_hole() && !is_dirty(*page))
        .map(|(page, _)| page)
        .collect();
    promise_nodes(core, &mut state.part, pages.clone(), wanted.len() as u64)?;
    let mut wanted = wanted.into_iter().peekable();
    for page in pages {
        core.cache.begin_write(&mut state.part.file, page);
        if wanted.next_if_eq(&page).is_some() {
            if let Some(cached) = state.part.file.pages.get_mut(page) {
                cached.promised = true;
            }
            state.part.promised += 1;
        }
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

impl<D: BlockPort + MemoryArea> Core<D> {
    /// Drops the pages `range`, dirty or not, and what they were promised.
    pub fn drop_pages(&self, part: &mut Part, range: Range<u64>) {
        let promised = self.cache.drop_range(&mut part.file, &range);
        part.promised -= promised;
        let kept: std::collections::BTreeSet<_> =
            part.file.dirty.iter().map(|page| slot_of(*page).0).collect();
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
        if let Some(page) = state.part.file.pages.get_mut(size / PAGE as u64) {
            page.bytes[size as usize % PAGE..].fill(0);
        }
    }
}

/// Whether a page of a file has data, as far as `seek` is concerned.
pub fn has_data<D: BlockPort + MemoryArea>(state: &State<D>, page: u64, address: Address) -> bool {
    address.block().is_some() || state.part.file.pages.get(page).is_some_and(|page| page.dirty)
}

/// Makes bytes of one page read as zeros; a page that is nowhere stays so.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn zero_in_page<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    inode: &Arc<Inode<D>>,
    state: &mut State<D>,
    bytes: Range<u64>,
) -> Result<()> {
    let page = bytes.start / PAGE as u64;
    let address = {
        let domain = core.domain(inode.ino);
        let _gate = domain.gate.read();
        core.addresses(domain, (inode.ino, state), page, page + 1)?[0]
    };
    files::zero_in_page(core, inode, state, bytes, address.block().is_some())
}

/// Makes pages with data read as zeros, in their blocks.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn zero_pages<D: BlockPort + MemoryArea>(
    core: &Core<D>,
    inode: &Arc<Inode<D>>,
    state: &mut State<D>,
    pages: Range<u64>,
) -> Result<()> {
    for page in pages {
        let start = page * PAGE as u64;
        zero_in_page(core, inode, state, start..start + PAGE as u64)?;
    }
    Ok(())
}

impl<D: BlockPort + MemoryArea> Files for Core<D> {
    fn cache(&self) -> &FileCache<Self> {
        &self.cache
    }

    fn file(part: &mut Part) -> &mut FilePages {
        &mut part.file
    }

    fn file_of(part: &Part) -> &FilePages {
        &part.file
    }

    fn load_pages(&self, inode: &Arc<Inode<D>>, state: &mut State<D>, bytes: Range<u64>) -> Result<()> {
        load_pages(self, inode, state, bytes)
    }

    fn read_device(&self, inode: &Inode<D>, state: &State<D>, first: u64, into: &mut [u8]) -> Result<()> {
        let domain = self.domain(inode.ino);
        let _gate = domain.gate.read();
        let end = first + (into.len() / PAGE) as u64;
        let addresses = self.addresses(domain, (inode.ino, state), first, end)?;
        let blocks: Vec<_> = addresses.iter().map(|address| address.block()).collect();
        self.ground.read_runs(&blocks, into)
    }

    fn write_back(&self, inode: &Arc<Inode<D>>, state: &mut State<D>) -> Result<()> {
        write_back(self, inode, state, &Edit::default())
    }

    fn was_loaded(&self, part: &mut Part) {
        if planted::has(Bug::PagesForgotten) {
            self.cache.drop_clean(&mut part.file);
        }
    }
}
