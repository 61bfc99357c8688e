//! Ranges of files: what of one has data and what is a hole, making one read as zeros, and what goes when a
//! file gets another size.

use std::ops::Range;
use std::sync::Arc;

use amphi_names::{Change, Changed, Guard, Inode, Need, State, regular, shed_capability};
use amphi_vfs::{Allocate, Error, Result, Seek};

use crate::files::{FilePart, Files};
use crate::format::PAGE;
use crate::reads::load_pages;

const PAGE_BYTES: u64 = PAGE as u64;

/// What `allocate` begins with: the file locked, and the range as far as a file can have it.
///
/// # Errors
/// As [`amphi_vfs::FileSystem::allocate`].
pub fn begin_allocate<'i, F: Files>(
    fs: &F,
    inode: &'i Arc<Inode<F::Part>>,
    (offset, length): (u64, u64),
    what: Allocate,
) -> Result<(Guard<'i, F::Part>, Range<u64>)> {
    regular(inode.file_type)?;
    fs.names().health.writable()?;
    if length == 0 {
        return Err(Error::Invalid("an empty range"));
    }
    let end = offset.saturating_add(length);
    if what.reserves() && end > F::FILE_BYTES_MAX {
        return Err(Error::TooLarge);
    }
    let end = end.min(F::FILE_BYTES_MAX).max(offset);
    let mut state = inode.state.write();
    if state.gone {
        return Err(Error::Stale(inode.ino));
    }
    shed_capability(fs, inode, &mut state)?;
    Ok((state, offset..end))
}

/// Has the bytes of a range that are part of a page read as zeros. Returns the whole pages in between, which
/// stay as they are.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn zero_edges<F: Files>(
    fs: &F,
    inode: &Arc<Inode<F::Part>>,
    state: &mut State<F::Part>,
    bytes: Range<u64>,
) -> Result<Range<u64>> {
    let whole = bytes.start.div_ceil(PAGE_BYTES)..bytes.end / PAGE_BYTES;
    let edges = if whole.start > whole.end {
        [bytes.clone(), bytes.end..bytes.end]
    } else {
        [bytes.start..whole.start * PAGE_BYTES, whole.end * PAGE_BYTES..bytes.end]
    };
    for edge in edges.into_iter().filter(|edge| !edge.is_empty()) {
        zero_in_page(fs, inode, state, edge)?;
    }
    Ok(whole)
}

/// Has bytes of one page read as zeros. A page that is nowhere stays so.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn zero_in_page<F: Files>(
    fs: &F,
    inode: &Arc<Inode<F::Part>>,
    state: &mut State<F::Part>,
    bytes: Range<u64>,
) -> Result<()> {
    let page = bytes.start / PAGE_BYTES;
    let address = {
        let _gate = fs.domain(inode.ino).gate.read();
        fs.addresses(inode, state, page, page + 1)?[0]
    };
    if address.block().is_none() && !state.file().pages.is_dirty(page) {
        return Ok(());
    }
    load_pages(fs, inode, state, bytes.start..bytes.start + 1)?;
    let file = state.file_mut();
    let cached = file.page_mut(page).ok_or(Error::Stale(inode.ino))?;
    let start = bytes.start as usize % PAGE;
    cached[start..start + (bytes.end - bytes.start) as usize].fill(0);
    fs.cache().mark_dirty(file, page);
    fs.cache().note_dirty(inode);
    Ok(())
}

/// Where the next data, or the next hole, of a file is.
///
/// # Errors
/// As [`amphi_vfs::FileSystem::seek`].
pub fn seek<F: Files>(fs: &F, inode: &Inode<F::Part>, offset: u64, what: Seek) -> Result<u64> {
    regular(inode.file_type)?;
    let state = inode.state.read();
    if offset >= state.size {
        return Err(Error::NoData);
    }
    let (mut page, end) = (offset / PAGE_BYTES, state.size.div_ceil(PAGE_BYTES));
    let wanted = what == Seek::Data;
    let cached = &state.file().pages;
    let _gate = fs.domain(inode.ino).gate.read();
    while page < end {
        let (words, next) = fs.stretch(inode, &state, page..end)?;
        let next = next.min(end);
        let there = |at: u64| words.get((at - page) as usize).is_some_and(|known| known.block().is_some());
        let found = if words.is_empty() && wanted {
            cached.dirty().iter().copied().filter(|at| (page..next).contains(at)).min()
        } else {
            (page..next).find(|at| (there(*at) || cached.is_dirty(*at)) == wanted)
        };
        if let Some(found) = found {
            return Ok(offset.max(found * PAGE_BYTES));
        }
        page = next;
    }
    if wanted { Err(Error::NoData) } else { Ok(state.size) }
}

/// See [`amphi_names::Store::resize`].
///
/// # Errors
/// As there.
pub fn resize<'a, F: Files>(
    fs: &'a F,
    inode: &Arc<Inode<F::Part>>,
    state: &mut State<F::Part>,
    size: u64,
    apply: impl FnOnce(&mut F::Change<'a>, &mut State<F::Part>) -> Result<()>,
) -> Result<()> {
    if size > F::FILE_BYTES_MAX {
        return Err(Error::TooLarge);
    }
    fs.prepare_resize(inode, state, size)?;
    let mut change = fs.begin(&Need::NOTHING)?;
    if size < state.size {
        fs.cut_off(&mut change, inode, state, size)?;
    }
    apply(&mut change, state)?;
    state.size = size;
    state.file_mut().stored_size = size;
    change.write_inode(inode, state, Changed::Contents)?;
    change.commit()?;
    if state.file().pages.is_clean() {
        fs.cache().note_clean(inode);
    }
    Ok(())
}
