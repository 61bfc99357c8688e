//! Regular files: reading and writing through the page cache.
//!
//! A write changes cached pages only and reserves a block for each that has none; which blocks those will be
//! is decided when they are written back (delayed allocation). Bytes of a page behind the end of the file are
//! zeros in the cache.

use std::sync::Arc;

use amphi_device::{BlockPort, Lpa};
use amphi_page_cache::{Mapped, Mapping, Page, Plain, Run};
use amphi_vfs::{Cred, Error, Ino, Result, Seek, WriteMode};
use amphi_volume::read_runs;

use crate::core::Core;
use crate::data::body::FileBody;
use crate::data::writeback::{fsync, journal_dirty, write_back};
use crate::format::{BLOCK, FILE_BYTES_MAX};
use crate::index::extent::Extents;
use crate::index::part::{Body, Inode, Part, State};
use crate::journal::buffers::{Buffer, Kind, SharedBlock};

/// Most pages read by one command.
const COMMAND_PAGES: u64 = 64;
/// Most pages that a read brings into the cache before it hands them out: 1 MB.
const READ_PART: usize = 256;
/// What must be read so that the pages `first ..= last` are cached.
fn missing(file: &FileBody, extents: &Extents, first: u64, last: u64) -> Vec<Run> {
    file.pages.all_missing(extents, first, last, COMMAND_PAGES).collect()
}

/// Blocks that were read.
struct Blocks {
    /// By their pages.
    pages: Vec<(u64, SharedBlock)>,
    /// With data journaling, what was on its way through the journal before: while it is held here, it does
    /// not leave memory, and so is asked once the device, which may not have had it yet, has answered.
    _on_their_way: Vec<Arc<Buffer>>,
}

/// Reads the blocks of runs.
fn read_blocks<D: BlockPort>(core: &Core<D>, wanted: &[Run]) -> Result<Blocks> {
    let lbas = wanted.iter().flat_map(|run| run.lba..run.lba + run.pages);
    let on_their_way =
        core.journals_data().then(|| lbas.filter_map(|lba| core.buffers.cached(lba)).collect());
    let places = wanted.iter().map(|run| (Some(Lpa(run.lba)), run.pages as usize));
    let mut pages = Vec::new();
    for (run, bytes) in wanted.iter().zip(&read_runs(&*core.device, places)?) {
        let blocks = bytes.as_chunks::<BLOCK>().0.iter().map(|block| Arc::new(Box::new(*block)));
        pages.extend((run.index..).zip(blocks));
    }
    Ok(Blocks { pages, _on_their_way: on_their_way.unwrap_or_default() })
}

/// With data journaling, the newest contents of a block may be on their way through the journal.
fn newest<D: BlockPort>(core: &Core<D>, extents: &Extents, index: u64, read: SharedBlock) -> SharedBlock {
    if core.journals_data()
        && let Mapped::At { lba, .. } = extents.map(index)
        && let Some(buffer) = core.buffers.cached(lba)
        && let Ok(state) = buffer.lock(Kind::Data)
    {
        return Arc::clone(&state.data);
    }
    read
}

/// Adds pages that were read to the cache, unless they came there meanwhile.
fn keep<D: BlockPort>(core: &Core<D>, inode: &Arc<Inode>, state: &mut State, read: Blocks) {
    let size = state.size_on_disk;
    let Part { body: Body::File(file), extents, .. } = &mut state.part else { return };
    for (index, data) in read.pages {
        if file.pages.get(index).is_some() {
            continue;
        }
        let mut data = newest(core, extents, index, data);
        let valid = size.saturating_sub(index * BLOCK as u64).min(BLOCK as u64) as usize;
        let hidden = data[valid..].iter().any(|byte| *byte != 0);
        if hidden {
            Arc::make_mut(&mut data)[valid..].fill(0);
        }
        // A crash may have left bytes behind the end of the file: they are overwritten before it grows. One
        // that can grow no more may be a log, whose bytes only the register knows.
        let is_dirty = hidden && core.writable().is_ok();
        file.pages.keep(&core.pages, index, Page::new(data, ()), is_dirty);
        if is_dirty {
            core.dirty.note(inode.ino, &inode.beside.dirty);
        }
    }
}

/// Brings the pages `first ..= last` into the cache, with the lock held.
///
/// # Errors
/// [`Error::Io`].
pub fn load<D: BlockPort>(
    core: &Core<D>,
    inode: &Arc<Inode>,
    state: &mut State,
    first: u64,
    last: u64,
) -> Result<()> {
    let wanted = missing(state.body.file()?, &state.extents, first, last);
    if !wanted.is_empty() {
        let read = read_blocks(core, &wanted)?;
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
    let ahead = if direct { 0 } else { core.options.read_ahead_blocks };
    // What could not be written is in memory only.
    let direct = direct && !core.names.health.has_failed();
    if direct {
        // What is cached and dirty is written first; then, as for a page not cached, the device answers.
        inode.state.read().body.file()?;
        write_back(core, &inode)?;
        drop_range(core, &inode, offset, into.len());
    }
    let part_max = READ_PART.min(core.options.page_cache_pages.div_ceil(2)) * BLOCK;
    let (done, moves_atime) = loop {
        let len = {
            let state = inode.state.read();
            let file = state.body.file()?;
            let len = state.size.saturating_sub(offset).min(into.len() as u64) as usize;
            if len == 0 || file.pages.copy_out(&state.extents, offset, &mut into[..len]) {
                break (len, amphi_names::read_moves_atime(core, &state));
            }
            len
        };
        if len > part_max {
            break read_long(core, &inode, offset, into, part_max)?;
        }
        let (first, last) = (offset / BLOCK as u64, (offset + len as u64 - 1) / BLOCK as u64);
        fetch(core, &inode, first, last, ahead)?;
    };
    if direct {
        drop_range(core, &inode, offset, into.len());
    }
    if moves_atime {
        amphi_names::note_read(core, &inode);
    }
    let _reported_to_who_syncs = core.relieve(&inode);
    Ok(done)
}

/// Reads more than is brought into the cache at once, part by part. The inode is locked from the first to the
/// last, so that each write is seen whole or not at all. Returns the length, and whether the access time
/// moves.
fn read_long<D: BlockPort>(
    core: &Core<D>,
    inode: &Arc<Inode>,
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
        load(core, inode, &mut state, at / BLOCK as u64, (at + part as u64 - 1) / BLOCK as u64)?;
        let Part { body: Body::File(file), extents, .. } = &mut state.part else { break };
        let complete = file.pages.copy_out(extents, at, &mut into[done..done + part]);
        debug_assert!(complete, "every written page of the part was loaded");
        done += part;
        if core.pages.exceeded() {
            file.drop_clean(&core.pages, usize::MAX, true);
        }
    }
    Ok((len, amphi_names::read_moves_atime(core, &state)))
}

/// Reads missing pages without holding the inode, and keeps them if the file has not changed on the device
/// meanwhile.
fn fetch<D: BlockPort>(core: &Core<D>, inode: &Arc<Inode>, first: u64, last: u64, ahead: u32) -> Result<()> {
    let (wanted, version, asked) = {
        let mut state = inode.state.write();
        let end = state.size.div_ceil(BLOCK as u64);
        let Part { body: Body::File(file), extents, .. } = &mut state.part else { return Ok(()) };
        let asked = last;
        let last = file.ahead.last(first, last, u64::from(ahead)).min(end.saturating_sub(1)).max(last);
        // A block that nobody asked for may be unreadable.
        let asked = (last > asked).then(|| missing(file, extents, first, asked));
        (missing(file, extents, first, last), file.version, asked)
    };
    let read = read_blocks(core, &wanted);
    let read = read.or_else(|error| asked.map_or(Err(error), |asked| read_blocks(core, &asked)))?;
    let mut state = inode.state.write();
    if state.body.file()?.version == version {
        keep(core, inode, &mut state, read);
    }
    Ok(())
}

/// Drops clean pages of a range from the cache.
pub fn drop_range<D: BlockPort>(core: &Core<D>, inode: &Inode, offset: u64, len: usize) {
    let mut state = inode.state.write();
    let Ok(file) = state.body.file_mut() else { return };
    if file.in_flight.is_none() {
        let end = offset.saturating_add(len as u64).div_ceil(BLOCK as u64);
        file.pages.forget_clean(&core.pages, offset / BLOCK as u64..end);
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
    state.body.file()?;
    if data.is_empty() {
        return Ok(0);
    }
    let offset = if how.append { state.size } else { offset };
    let end = offset.checked_add(data.len() as u64).filter(|end| *end <= FILE_BYTES_MAX);
    let end = end.ok_or(Error::TooLarge)?;
    let (first, last) = (offset / BLOCK as u64, (end - 1) / BLOCK as u64);
    let unmapped = state.body.file()?.pages.wanted(&state.extents, first, last).unmapped;
    let mut reserved = core.reserve(unmapped)?;
    load_edges(core, &inode, &mut state, offset, end)?;
    note_write(core, &inode, &mut state, cred)?;
    reserved.take(unmapped);
    drop(reserved);
    let file = state.body.file_mut()?;
    file.pages.write(&core.pages, offset, data, &mut Plain);
    file.unmapped += unmapped;
    state.size = state.size.max(end);
    core.dirty.note(inode.ino, &inode.beside.dirty);
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

/// Brings into the cache what a write changes in part only, and the last page of a file that will grow.
fn load_edges<D: BlockPort>(
    core: &Core<D>,
    inode: &Arc<Inode>,
    state: &mut State,
    offset: u64,
    end: u64,
) -> Result<()> {
    let size = state.size;
    if end > size && !size.is_multiple_of(BLOCK as u64) {
        let last = size / BLOCK as u64;
        load(core, inode, state, last, last)?;
    }
    for edge in [offset, end] {
        // The end's page matters only if there is something of the file behind it.
        if !edge.is_multiple_of(BLOCK as u64) && (edge == offset || end < size) {
            let index = edge / BLOCK as u64;
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
pub fn note_write<D: BlockPort>(core: &Core<D>, inode: &Inode, state: &mut State, cred: &Cred) -> Result<()> {
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

/// Makes a part of a page read as zeros. Nothing is in flight.
///
/// # Errors
/// [`Error::Io`].
pub fn zero_in_page<D: BlockPort>(
    core: &Core<D>,
    inode: &Arc<Inode>,
    state: &mut State,
    index: u64,
    bytes: std::ops::Range<usize>,
) -> Result<()> {
    load(core, inode, state, index, index)?;
    let file = state.body.file_mut()?;
    if let Some(page) = file.pages.get_mut(index) {
        Arc::make_mut(&mut page.data)[bytes].fill(0);
        file.pages.mark_dirty(&core.pages, index);
        core.dirty.note(inode.ino, &inode.beside.dirty);
    }
    Ok(())
}

/// Finds data or a hole; see [`amphi_vfs::FileSystem::seek`].
///
/// # Errors
/// As there.
pub fn seek(inode: &Inode, offset: u64, what: Seek) -> Result<u64> {
    let state = inode.state.read();
    state.body.file()?.pages.seek(&state.extents, state.size, offset, what)
}
