//! Reading files: from pages in host memory, from the device, and bringing the one into the other. Readers of
//! a file do not wait for each other, and each read sees every write whole or not at all.

use std::ops::Range;
use std::sync::Arc;

use amphi_names::{Inode, State, note_read, read_moves_atime, regular};
use amphi_page_cache::BoxedFrame;
use amphi_vfs::Result;

use crate::files::{FilePart, Files, relieve, write_back_file};
use crate::format::PAGE;

const PAGE_BYTES: u64 = PAGE as u64;
/// Most pages that are on their way from the device at once.
const PAGES_AT_A_TIME: u64 = 256;
/// Pages that are read ahead of who reads in order: 128 KB, as the kernel has it.
const READ_AHEAD: u64 = 32;

/// Pages as the device has them, by number.
type Loaded = Vec<(u64, BoxedFrame)>;

fn pages_of(bytes: &Range<u64>) -> Range<u64> {
    bytes.start / PAGE_BYTES..bytes.end.div_ceil(PAGE_BYTES)
}

/// Reads at `offset`. Returns the number of bytes.
///
/// # Errors
/// As [`amphi_vfs::FileSystem::read`].
pub fn read<F: Files>(
    fs: &F,
    inode: &Arc<Inode<F::Part>>,
    offset: u64,
    into: &mut [u8],
    direct: bool,
) -> Result<usize> {
    regular(inode.file_type)?;
    // What could not be written is in memory only.
    let direct = direct && !fs.names().health.has_failed();
    let (read, moves_atime) =
        if direct { read_direct(fs, inode, offset, into)? } else { read_cached(fs, inode, offset, into)? };
    if moves_atime {
        note_read(fs, inode);
    }
    if !direct {
        let _reported_to_who_syncs = relieve(fs, inode);
    }
    Ok(read)
}

/// The device answers: what is dirty of the pages is written first, and nothing stays in memory that was not
/// there. Returns the length, and whether the access time moves.
fn read_direct<F: Files>(
    fs: &F,
    inode: &Arc<Inode<F::Part>>,
    offset: u64,
    into: &mut [u8],
) -> Result<(usize, bool)> {
    loop {
        let state = inode.state.read();
        let len = state.size.saturating_sub(offset).min(into.len() as u64) as usize;
        let pages = pages_of(&(offset..offset.saturating_add(len as u64)));
        let cached = &state.file().pages;
        if len > 0 && !cached.is_clean() && pages.clone().any(|page| cached.is_dirty(page)) {
            drop(state);
            write_back_file(fs, inode)?;
            continue;
        }
        let within = offset as usize % PAGE;
        if within == 0 && len.is_multiple_of(PAGE) {
            read_device(fs, inode, &state, pages.start, &mut into[..len])?;
        } else if len > 0 {
            let mut whole = vec![0; (pages.end - pages.start) as usize * PAGE];
            read_device(fs, inode, &state, pages.start, &mut whole)?;
            into[..len].copy_from_slice(&whole[within..][..len]);
        }
        return Ok((len, read_moves_atime(fs, &state)));
    }
}

/// Memory answers, and what is not there comes from the device and stays. Returns the length, and whether the
/// access time moves.
fn read_cached<F: Files>(
    fs: &F,
    inode: &Arc<Inode<F::Part>>,
    offset: u64,
    into: &mut [u8],
) -> Result<(usize, bool)> {
    let (loaded, version, answer) = {
        let state = inode.state.read();
        let len = state.size.saturating_sub(offset).min(into.len() as u64) as usize;
        let answer = (len, read_moves_atime(fs, &state));
        let file = state.file();
        if len == 0 || file.copy(offset, &mut into[..len]) {
            return Ok(answer);
        }
        (fetch(fs, inode, &state, offset, &mut into[..len])?, file.version, answer)
    };
    let mut state = inode.state.write();
    if state.file().version == version {
        keep(fs, inode, &mut state, loaded);
        fs.was_loaded(&mut state.part);
    }
    Ok(answer)
}

/// Reads what is not in memory of a range, and ahead of it, and copies the range. Returns what may be kept of
/// it.
fn fetch<F: Files>(
    fs: &F,
    inode: &Inode<F::Part>,
    state: &State<F::Part>,
    offset: u64,
    into: &mut [u8],
) -> Result<Loaded> {
    let file = state.file();
    let end = offset + into.len() as u64;
    let Range { start: first, end: behind } = pages_of(&(offset..end));
    let ahead = file.ahead.lock().last(first, behind - 1, READ_AHEAD) + 1;
    let behind = ahead.min(state.size.div_ceil(PAGE_BYTES)).max(behind);
    let mut kept = Loaded::new();
    let mut page = first;
    while page < behind {
        let next = behind.min(page + PAGES_AT_A_TIME);
        let asked = next.min(end.div_ceil(PAGE_BYTES));
        // A page that nobody asked for may be unreadable.
        let loaded = load(fs, inode, state, page..next)
            .or_else(|error| if asked < next { load(fs, inode, state, page..asked) } else { Err(error) })?;
        let mut rest = loaded.iter().peekable();
        for page in page..asked {
            let start = page * PAGE_BYTES;
            let (from, to) = (start.max(offset), (start + PAGE_BYTES).min(end));
            let part = &mut into[(from - offset) as usize..(to - offset) as usize];
            match rest.next_if(|(loaded, _)| *loaded == page) {
                Some((_, bytes)) => {
                    part.copy_from_slice(&bytes[(from - start) as usize..(to - start) as usize]);
                }
                None => {
                    let there = file.copy(from, part);
                    debug_assert!(there, "what was not loaded is in memory");
                }
            }
        }
        if kept.len() + loaded.len() <= fs.cache().budget.usage().frames_max / 2 {
            kept.extend(loaded);
        }
        page = next;
    }
    Ok(kept)
}

/// Reads what is not in memory of some pages; what is nowhere is zeros.
fn load<F: Files>(
    fs: &F,
    inode: &Inode<F::Part>,
    state: &State<F::Part>,
    pages: Range<u64>,
) -> Result<Loaded> {
    let cached = &state.file().pages;
    let missing: Vec<_> = pages.filter(|page| cached.get(*page).is_none()).collect();
    let (Some(first), Some(last)) = (missing.first(), missing.last()) else { return Ok(Loaded::new()) };
    let _gate = fs.domain(inode.ino).gate.read();
    let addresses = fs.addresses(inode, state, *first, last + 1)?;
    let block = |page: &u64| (*page, addresses[(page - first) as usize].block());
    let wanted: Vec<_> = missing.iter().map(block).collect();
    fs.ground().read_pages(&wanted)
}

/// Keeps pages that were read and did not come into memory meanwhile.
fn keep<F: Files>(fs: &F, inode: &Arc<Inode<F::Part>>, state: &mut State<F::Part>, loaded: Loaded) {
    for (page, bytes) in loaded {
        if state.file().pages.get(page).is_none() {
            fs.keep(inode, state, page, bytes);
        }
    }
}

/// Brings the pages of a range of bytes into memory that are not there.
///
/// # Errors
/// [`amphi_vfs::Error::Corrupt`], [`amphi_vfs::Error::Io`].
pub fn load_pages<F: Files>(
    fs: &F,
    inode: &Arc<Inode<F::Part>>,
    state: &mut State<F::Part>,
    bytes: Range<u64>,
) -> Result<()> {
    let loaded = load(fs, inode, state, pages_of(&bytes))?;
    keep(fs, inode, state, loaded);
    Ok(())
}

/// Brings the pages of these places in a file into memory, as far as they are written in part. What lies
/// behind the end of the file is zeros.
///
/// # Errors
/// [`amphi_vfs::Error::Corrupt`], [`amphi_vfs::Error::Io`].
pub fn load_edges<F: Files>(
    fs: &F,
    inode: &Arc<Inode<F::Part>>,
    state: &mut State<F::Part>,
    edges: &[u64],
) -> Result<()> {
    for edge in edges {
        if !edge.is_multiple_of(PAGE_BYTES) && edge / PAGE_BYTES * PAGE_BYTES <= state.size {
            load_pages(fs, inode, state, *edge..edge + 1)?;
        }
    }
    Ok(())
}

/// Reads what the device has of pages from `first` on, past those in memory, into as many pages.
fn read_device<F: Files>(
    fs: &F,
    inode: &Inode<F::Part>,
    state: &State<F::Part>,
    first: u64,
    into: &mut [u8],
) -> Result<()> {
    let _gate = fs.domain(inode.ino).gate.read();
    let addresses = fs.addresses(inode, state, first, first + (into.len() / PAGE) as u64)?;
    let blocks: Vec<_> = addresses.iter().map(|address| address.block()).collect();
    fs.ground().read_runs(&blocks, into)
}
