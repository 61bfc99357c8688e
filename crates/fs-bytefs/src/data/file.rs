//! Regular files: reading and writing through the page cache.
//!
//! A write changes cached pages only and reserves the blocks it will need, so that writing back never runs
//! out of space; `writeback.rs` brings the pages to the device.

use amphi_device::{BlockPort, WriteLog};
use amphi_names::{move_atime, note_read, read_moves_atime, shed_capability};
use amphi_vfs::{Cred, Error, Result, Seek, WriteMode};

use crate::core::Core;
use crate::data::body::{Fetched, FileBody, Promise};
use crate::data::duplicate::Writing;
use crate::data::writeback::write_back;
use crate::format::PAGE;
use crate::index::extent::FILE_PAGES_MAX;
use crate::index::inode::{Inode, State};

/// Largest file in bytes.
pub const FILE_BYTES_MAX: u64 = FILE_PAGES_MAX * PAGE as u64 - 1;
/// Fewest pages that a write takes into the cache at once.
const WRITE_PART_MIN: usize = 16;
/// Most pages that a read has on their way at once: 4 MB.
const READ_PART: u64 = 1024;
/// Pages that are read ahead of who reads in order: 128 KB, as the kernel has it.
const READ_AHEAD: u64 = 32;

/// Reads at `offset`; see [`amphi_vfs::FileSystem::read`]. Readers of a file do not wait for each other.
///
/// # Errors
/// As there.
pub fn read<D: BlockPort + WriteLog>(
    core: &Core<D>,
    inode: &Inode,
    offset: u64,
    into: &mut [u8],
) -> Result<usize> {
    let (fetched, version, len, moves) = {
        let state = inode.state.read();
        let file = state.body.file()?;
        let len = state.size.saturating_sub(offset).min(into.len() as u64) as usize;
        let moves = read_moves_atime(core, &state);
        if len == 0 || file.copy_out(offset, &mut into[..len]) {
            drop(state);
            if moves {
                note_read(core, inode);
            }
            return Ok(len);
        }
        let fetched = fetch(core, &state, file, offset, &mut into[..len])?;
        (fetched, (file.version, state.size_on_device), len, moves)
    };
    let mut state = inode.state.write();
    let size_on_device = state.size_on_device;
    let file = state.body.file_mut()?;
    if (file.version, size_on_device) == version {
        file.keep(core, fetched);
    }
    if moves {
        move_atime(core, inode, &mut state);
    }
    drop(state);
    core.shrink_caches();
    Ok(len)
}

/// Reads what is not cached of a range, and ahead of it, and copies the range. Returns what may be kept of
/// it: not more than half of the cache.
fn fetch<D: BlockPort + WriteLog>(
    core: &Core<D>,
    state: &State,
    file: &FileBody,
    offset: u64,
    into: &mut [u8],
) -> Result<Fetched> {
    let (first, last) = (offset / PAGE as u64, (offset + into.len() as u64 - 1) / PAGE as u64);
    let end = state.size.div_ceil(PAGE as u64);
    let limit = READ_AHEAD.min(core.options.page_cache_pages as u64 / 8);
    let ahead = file.ahead.lock().last(first, last, limit).min(end - 1);
    let mut kept = Fetched::new();
    let mut done = 0;
    while done < into.len() {
        let at = offset + done as u64;
        let page = at / PAGE as u64;
        let end = (page + READ_PART) * PAGE as u64;
        let part = (end - at).min((into.len() - done) as u64) as usize;
        let last = (at + part as u64 - 1) / PAGE as u64;
        let wanted = |last| file.fetch(core, state.size_on_device, page, last);
        let is_last = done + part == into.len();
        // A page that nobody asked for may be unreadable.
        let fetched =
            if is_last && ahead > last { wanted(ahead).or_else(|_| wanted(last)) } else { wanted(last) }?;
        let complete = file.pages.copy_out_of(&file.tree, at, &mut into[done..done + part], &fetched);
        debug_assert!(complete, "every mapped page of the range was read");
        if kept.len() + fetched.len() <= core.options.page_cache_pages.div_ceil(2) {
            kept.extend(fetched);
        }
        done += part;
    }
    Ok(kept)
}

/// Writes at `offset` or the end; see [`amphi_vfs::FileSystem::write`].
///
/// # Errors
/// As there.
pub fn write<D: BlockPort + WriteLog>(
    core: &Core<D>,
    inode: &Inode,
    offset: u64,
    data: &[u8],
    how: WriteMode,
    cred: &Cred,
) -> Result<usize> {
    core.writable()?;
    let mut state = inode.state.write();
    state.body.file()?;
    if data.is_empty() {
        return Ok(0);
    }
    let offset = if how.append { state.size } else { offset };
    let end = offset.checked_add(data.len() as u64).filter(|end| *end <= FILE_BYTES_MAX);
    let end = end.ok_or(Error::TooLarge)?;
    shed_capability(core, inode, &mut state)?;
    let part = atomic_part(core, inode, &mut state, offset, end)?;
    let mut promise = Promise::of_parts(core, state.body.file()?, offset, end, part)?;
    let mut at = offset;
    for part in data.chunks(part) {
        if at > offset {
            core.throttle(inode, &mut state)?;
            if core.journals_data() {
                // Longer than the journal: all that can be had is one part after the other.
                write_back(core, inode, &mut state, false)?;
            }
        }
        write_part(core, inode, &mut state, at, part, &mut promise, cred)?;
        at += part.len() as u64;
    }
    drop(promise);
    if how.sync_data || how.direct {
        write_back(core, inode, &mut state, !how.sync_metadata)?;
    }
    core.throttle(inode, &mut state)?;
    drop(state);
    core.relieve()?;
    Ok(data.len())
}

/// How many bytes of a write are taken into the cache at once, so that what is longer than the cache does not
/// fill it. With data journaling, one record must hold all pages that the next write-back overwrites: a file
/// that is close to that is written back first.
fn atomic_part<D: BlockPort + WriteLog>(
    core: &Core<D>,
    inode: &Inode,
    state: &mut State,
    offset: u64,
    end: u64,
) -> Result<usize> {
    let capacity = core.journal.capacity() as u64;
    // One more for the tail of the file that a write beyond its end uncovers.
    let pages = (end - 1) / PAGE as u64 - offset / PAGE as u64 + 2;
    if !core.journals_data() {
        return Ok(core.options.dirty_limit().max(WRITE_PART_MIN) * PAGE);
    }
    if state.body.file()?.pages.dirty_pages() as u64 + pages <= capacity {
        return Ok(usize::MAX);
    }
    write_back(core, inode, state, false)?;
    Ok(if pages <= capacity { usize::MAX } else { (capacity as usize - 2) * PAGE })
}

fn write_part<D: BlockPort + WriteLog>(
    core: &Core<D>,
    inode: &Inode,
    state: &mut State,
    offset: u64,
    data: &[u8],
    promise: &mut Promise<'_>,
    cred: &Cred,
) -> Result<()> {
    let end = offset + data.len() as u64;
    let size_on_device = state.size_on_device;
    let file = state.body.file_mut()?;
    let (first, last) = (offset / PAGE as u64, (end - 1) / PAGE as u64);
    let wanted = file.pages.wanted(&file.tree, first, last);
    file.reserve(core, wanted, promise)?;
    if let Err(error) = prepare_pages(core, file, size_on_device, offset, end) {
        file.unmapped -= wanted.unmapped;
        core.blocks.unreserve(wanted.unmapped);
        return Err(error);
    }
    let writing = &mut Writing {
        threshold: core.keeps_duplicates().then_some(core.options.byte_threshold),
        frames: core.pages.pool.stock(data.len() / PAGE),
        pool: &core.pages.pool,
    };
    file.pages.write(&core.pages, offset, data, writing);
    state.size = state.size.max(end);
    note_write(core, inode, state, cred);
    Ok(())
}

/// Loads what the write needs of the device's contents: pages covered in part, and the tail that the file
/// grows over.
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

/// Moves the times, clears set-id bits unless a privileged caller wrote, and has the inode written back some
/// time.
pub fn note_write<D: BlockPort + WriteLog>(core: &Core<D>, inode: &Inode, state: &mut State, cred: &Cred) {
    amphi_names::note_write(core, state, cred);
    state.attributes_dirty = true;
    core.dirty.note(inode.ino, &inode.beside.dirty);
}

/// Finds data or a hole; see [`amphi_vfs::FileSystem::seek`].
///
/// # Errors
/// As there.
pub fn seek(inode: &Inode, offset: u64, what: Seek) -> Result<u64> {
    let state = inode.state.read();
    let file = state.body.file()?;
    file.pages.seek(&file.tree, state.size, offset, what)
}
