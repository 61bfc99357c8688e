//! Direct I/O (BY-13): requests of up to 512 bytes go by the byte interface, larger ones by the block
//! interface, past the page cache.
//!
//! The cache still decides what is true: a cached page is read from there, and a page that a direct write
//! changes on the device is changed in the cache alike, so buffered and direct I/O never disagree. What
//! direct I/O cannot do in place (a write that grows the file, fills a hole, meets dirty pages, or is large
//! and unaligned) takes the way through the cache with an immediate write-back.

use amphi_device::{BlockPort, Completion, Lpa, Structure, WriteLog};
use amphi_names::{note_read, read_moves_atime, shed_capability};
use amphi_page_cache::{Mapped, Mapping};
use amphi_vfs::{Cred, Result, WriteMode};
use amphi_volume::io_error;

use crate::core::Core;
use crate::data::body::FileBody;
use crate::data::duplicate::stored;
use crate::data::file::{self, note_write};
use crate::data::writeback::write_back;
use crate::format::PAGE;
use crate::index::inode::{Inode, State};
use crate::planted::{self, Bug};

/// Largest request that goes by bytes.
const BYTES_MAX: usize = 512;

/// Reads at `offset`; see [`amphi_vfs::FileSystem::read`] with `direct`.
///
/// # Errors
/// As there.
pub fn read<D: BlockPort + WriteLog>(
    core: &Core<D>,
    inode: &Inode,
    offset: u64,
    into: &mut [u8],
) -> Result<usize> {
    let state = inode.state.read();
    let file = state.body.file()?;
    let len = state.size.saturating_sub(offset).min(into.len() as u64) as usize;
    let mut done = 0;
    while done < len {
        let at = offset + done as u64;
        let (index, from) = (at / PAGE as u64, (at % PAGE as u64) as usize);
        let in_page = (PAGE - from).min(len - done);
        let rest = &mut into[done..len];
        done += match (file.pages.get(index), file.tree.map(index)) {
            (Some(page), _) => {
                rest[..in_page].copy_from_slice(&page.data()[from..from + in_page]);
                in_page
            }
            (None, Mapped::At { lba, pages }) => {
                read_device(core, file, (index, from), (lba, pages), rest, in_page).map_err(io_error)?
            }
            (None, _) => {
                rest[..in_page].fill(0);
                in_page
            }
        };
    }
    let moves = read_moves_atime(core, &state);
    drop(state);
    if moves {
        note_read(core, inode);
    }
    Ok(len)
}

/// Reads as many bytes as one command gives: a few by the byte interface, whole uncached pages in one run, or
/// a part of a page. Returns how many.
fn read_device<D: BlockPort + WriteLog>(
    core: &Core<D>,
    file: &FileBody,
    (index, from): (u64, usize),
    (lba, run): (u64, u64),
    into: &mut [u8],
    in_page: usize,
) -> amphi_device::Result<usize> {
    if into.len() <= BYTES_MAX {
        core.device.load(Lpa(lba).byte(from), &mut into[..in_page], Structure::Data)?;
        return Ok(in_page);
    }
    let whole = (into.len() / PAGE) as u64;
    if from == 0 && whole > 0 {
        let run = run.min(whole);
        let uncached = (1..run).find(|i| file.pages.get(index + i).is_some()).unwrap_or(run) as usize;
        core.device.read(Lpa(lba), &mut into[..uncached * PAGE], Structure::Data)?;
        return Ok(uncached * PAGE);
    }
    let mut page = Box::new([0; PAGE]);
    core.device.read(Lpa(lba), &mut page[..], Structure::Data)?;
    into[..in_page].copy_from_slice(&page[from..from + in_page]);
    Ok(in_page)
}

/// Writes at `offset`; see [`amphi_vfs::FileSystem::write`] with `direct`.
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
    {
        let mut state = inode.state.write();
        // In place would not be all at once: with data journaling a direct write is a cached one, written
        // back at once.
        if !core.journals_data() && in_place(&state, offset, data.len(), how)? {
            shed_capability(core, inode, &mut state)?;
            let stored = store(core, &state, offset, data);
            stored.map_err(|error| core.broken(error))?;
            update_cache(state.body.file_mut()?, offset, data);
            note_write(core, inode, &mut state, cred);
            if how.sync_metadata {
                write_back(core, inode, &mut state, false)?;
            }
            return Ok(data.len());
        }
    }
    file::write(core, inode, offset, data, how, cred)
}

/// Whether the device holds every page of the range and nothing newer waits in the cache, so that the write
/// can go straight there.
fn in_place(state: &State, offset: u64, len: usize, how: WriteMode) -> Result<bool> {
    let file = state.body.file()?;
    let Some(end) = offset.checked_add(len as u64) else { return Ok(false) };
    let aligned = offset.is_multiple_of(PAGE as u64) && len.is_multiple_of(PAGE);
    let refused = len <= BYTES_MAX && planted::has(Bug::DirectThroughCache);
    if refused
        || how.append
        || len == 0
        || end > state.size.min(state.size_on_device)
        || (len > BYTES_MAX && !aligned)
    {
        return Ok(false);
    }
    let mut pages = offset / PAGE as u64..end.div_ceil(PAGE as u64);
    Ok(pages.all(|index| matches!(file.tree.map(index), Mapped::At { .. }) && !file.pages.is_dirty(index)))
}

/// Brings the bytes to the device and waits until they are durable.
fn store<D: BlockPort + WriteLog>(
    core: &Core<D>,
    state: &State,
    offset: u64,
    data: &[u8],
) -> amphi_device::Result<()> {
    let Ok(file) = state.body.file() else { return Ok(()) };
    let device = &*core.device;
    let by_bytes = data.len() <= BYTES_MAX;
    let mut pieces: Vec<[&[u8]; 1]> = Vec::new();
    let mut places = Vec::new();
    let mut done = 0;
    while done < data.len() {
        let at = offset + done as u64;
        let (index, from) = (at / PAGE as u64, (at % PAGE as u64) as usize);
        let Mapped::At { lba, pages } = file.tree.map(index) else { break };
        let room = if by_bytes { PAGE - from } else { pages as usize * PAGE };
        let len = room.min(data.len() - done);
        let piece = &data[done..done + len];
        if by_bytes {
            device.store(Lpa(lba).byte(from), piece, None, Structure::Data)?;
            device.flush_lines(Lpa(lba).byte(from), len);
        } else {
            pieces.push([piece]);
            places.push(Lpa(lba));
        }
        done += len;
    }
    if by_bytes {
        device.fence();
        return if planted::has(Bug::DirectNotVerified) { Ok(()) } else { device.verify_read() };
    }
    let mut tickets = Vec::with_capacity(pieces.len());
    for (at, piece) in places.iter().zip(&pieces) {
        tickets.push(device.submit_write(*at, piece, Structure::Data)?);
    }
    for ticket in tickets {
        ticket.wait()?;
    }
    core.settle_blocks()
}

/// Notes that the device holds these bytes now.
fn update_cache(file: &mut FileBody, offset: u64, data: &[u8]) {
    file.version += 1;
    let mut done = 0;
    while done < data.len() {
        let at = offset + done as u64;
        let (index, from) = (at / PAGE as u64, (at % PAGE as u64) as usize);
        let len = (PAGE - from).min(data.len() - done);
        if let Some(page) = file.pages.get_mut(index) {
            stored(page, from, &data[done..done + len]);
        }
        done += len;
    }
}
