//! Contents of files: what is written to pages in host memory, and the blocks that are held for them.

use std::ops::Range;
use std::sync::Arc;

use amphi_device::BlockPort;
use amphi_names::{Change, Changed, Need, Store, note_write, regular, shed_capability};
use amphi_segments::files::{FileCache, FilePages, Files, relieve};
use amphi_vfs::{Cred, Error, Result, WriteMode};

use crate::change::Changing;
use crate::checkpoint;
use crate::core::Core;
use crate::format::{FILE_PAGES_MAX, PAGE};
use crate::inode::{Inode, Part, State};
use crate::planted::{self, Bug};
use crate::writeback::write_back;

/// Longest file in bytes.
pub const FILE_BYTES_MAX: u64 = FILE_PAGES_MAX * PAGE_BYTES;
const PAGE_BYTES: u64 = PAGE as u64;

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
    let missing: Vec<_> = pages.filter(|page| state.part.file.pages.get(*page).is_none()).collect();
    let (Some(first), Some(last)) = (missing.first(), missing.last()) else { return Ok(()) };
    let _gate = core.domain.gate.read();
    let addresses = core.addresses(inode.ino.0 as u32, *first, last + 1)?;
    let block = |page: &u64| (*page, addresses[(page - first) as usize].block());
    let wanted: Vec<_> = missing.iter().map(block).collect();
    for (page, mut bytes) in core.ground.read_pages(&wanted)? {
        let valid = state.size.saturating_sub(page * PAGE_BYTES).min(PAGE_BYTES) as usize;
        let hidden = bytes[valid..].iter().any(|byte| *byte != 0) && !planted::has(Bug::TailShown);
        if hidden {
            bytes[valid..].fill(0);
        }
        core.cache.insert(&mut state.part.file, page, bytes);
        if hidden && !core.options.read_only {
            core.cache.mark_dirty(&mut state.part.file, page);
            core.cache.note_dirty(inode);
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
        pages.for_each(|page| core.cache.begin_write(&mut state.part.file, page));
        if !state.part.file.fill(offset, data) {
            return Err(Error::Stale(inode.ino));
        }
        state.size = state.size.max(end);
        note_write(core, &mut state, cred);
        state.part.changed = true;
        core.cache.note_dirty(inode);
        if mode.direct {
            write_back(core, inode, &mut state)?;
        }
    }
    if mode.sync_data || mode.sync_metadata {
        checkpoint::fsync(core, inode)?;
    }
    relieve(core, inode)?;
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
        core.cache.note_dirty(inode);
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
    if state.part.file.dirty.is_empty() {
        core.cache.note_clean(inode.ino);
    }
    Ok(())
}

impl<D: BlockPort> Core<D> {
    /// Drops all pages of a file that goes.
    pub fn forget_pages(&self, part: &mut Part) {
        self.cache.drop_range(&mut part.file, &(0..u64::MAX));
    }

    /// Drops what a cut file has behind its end in memory.
    fn cut_pages(&self, part: &mut Part, size: u64) {
        self.cache.drop_range(&mut part.file, &(size.div_ceil(PAGE_BYTES)..u64::MAX));
        let last = size / PAGE_BYTES;
        let Some(page) = part.file.pages.get_mut(last) else { return };
        let tail = &mut page.bytes[size as usize % PAGE..];
        if tail.iter().any(|byte| *byte != 0) && !planted::has(Bug::TailShown) {
            tail.fill(0);
            // The device has it yet.
            self.cache.mark_dirty(&mut part.file, last);
        }
    }
}

impl<D: BlockPort> Files for Core<D> {
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

    fn read_device(&self, inode: &Inode<D>, _: &State<D>, first: u64, into: &mut [u8]) -> Result<()> {
        let _gate = self.domain.gate.read();
        let end = first + (into.len() / PAGE) as u64;
        let addresses = self.addresses(inode.ino.0 as u32, first, end)?;
        let blocks: Vec<_> = addresses.iter().map(|address| address.block()).collect();
        self.ground.read_runs(&blocks, into)
    }

    fn write_back(&self, inode: &Arc<Inode<D>>, state: &mut State<D>) -> Result<()> {
        write_back(self, inode, state)
    }
}
