//! Contents of files, by way of pages in host memory: reading, writing, and who writes back when there are
//! too many. Where a page is on the device, and how it comes there, the file system says ([`Files`]).

use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use amphi_device::BlockPort;
use amphi_names::{
    Guard, Inode, State, Store, note_read, note_write, read_moves_atime, regular, shed_capability,
};
use amphi_vfs::{Allocate, Cred, Error, Ino, Result, WriteMode};

use crate::domain::Domain;
use crate::format::{Address, PAGE};
use crate::ground::Ground;
pub use crate::pages::{FileCache, FilePages, Page};

/// Most pages that one turn of a read brings into memory.
const PAGES_AT_A_TIME: u64 = 256;

/// A file system whose files' pages are kept here.
pub trait Files: Store {
    /// The device.
    type Device: BlockPort;

    /// Longest file in bytes.
    const FILE_BYTES_MAX: u64;

    /// What is counted of all files.
    fn cache(&self) -> &FileCache<Self>;

    /// What is in memory of a file.
    fn file(part: &mut Self::Part) -> &mut FilePages;

    /// See [`file`](Self::file).
    fn file_of(part: &Self::Part) -> &FilePages;

    /// The device under them, and where everything is on it.
    fn ground(&self) -> &Ground<Self::Device>;

    /// The domain of a file.
    fn domain(&self, ino: Ino) -> &Domain;

    /// Where the pages `first .. end` of a file are. The caller has its domain's gate.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    fn addresses(
        &self,
        inode: &Inode<Self>,
        state: &State<Self>,
        first: u64,
        end: u64,
    ) -> Result<Vec<Address>>;

    /// Where the first of these pages are, up to one where a node ends: that one, and nothing if there is no
    /// node for any. The caller has the gate.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    fn stretch(
        &self,
        inode: &Inode<Self>,
        state: &State<Self>,
        pages: Range<u64>,
    ) -> Result<(Vec<Address>, u64)>;

    /// Puts a page as the device has it into memory.
    fn keep(&self, inode: &Arc<Inode<Self>>, state: &mut State<Self>, page: u64, bytes: Box<[u8]>) {
        let _ = inode;
        self.cache().insert(Self::file(&mut state.part), page, bytes);
    }

    /// Has the pages of a range of bytes that will be written in memory, dirty, each with a block that is
    /// there for it.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Corrupt`], [`Error::Io`].
    fn prepare(&self, inode: &Arc<Inode<Self>>, state: &mut State<Self>, bytes: Range<u64>) -> Result<()>;

    /// Has what was written be where its mode says that it is when the write returns.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    fn finish(&self, inode: &Arc<Inode<Self>>, state: Guard<'_, Self>, mode: WriteMode) -> Result<()>;

    /// Before a file gets another size: what must be on the device when that counts comes there.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    fn prepare_resize(&self, inode: &Arc<Inode<Self>>, state: &mut State<Self>, size: u64) -> Result<()>;

    /// What a file has behind its new end goes with a change.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    fn cut_off<'a>(
        &'a self,
        change: &mut Self::Change<'a>,
        inode: &Arc<Inode<Self>>,
        state: &mut State<Self>,
        size: u64,
    ) -> Result<()>;

    /// See [`amphi_vfs::FileSystem::allocate`].
    ///
    /// # Errors
    /// As there.
    fn allocate(
        &self,
        inode: &Arc<Inode<Self>>,
        offset: u64,
        length: u64,
        what: Allocate,
        cred: &Cred,
    ) -> Result<()>;

    /// Writes a file's dirty pages and its inode back. The caller has it locked.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`]; the file system is read-only then.
    fn write_back(&self, inode: &Arc<Inode<Self>>, state: &mut State<Self>) -> Result<()>;

    /// Pages that were just brought into memory have been read.
    fn was_loaded(&self, part: &mut Self::Part) {
        let _ = part;
    }
}

/// Reads at `offset`. Returns the number of bytes.
///
/// # Errors
/// As [`amphi_vfs::FileSystem::read`].
pub fn read<F: Files>(
    fs: &F,
    inode: &Arc<Inode<F>>,
    offset: u64,
    into: &mut [u8],
    direct: bool,
) -> Result<usize> {
    regular(inode.file_type)?;
    if direct { read_direct(fs, inode, offset, into) } else { read_cached(fs, inode, offset, into) }
}

/// The device answers: what is dirty of the pages is written first, and nothing stays in memory that was not
/// there. Readers do not wait for each other.
fn read_direct<F: Files>(fs: &F, inode: &Arc<Inode<F>>, offset: u64, into: &mut [u8]) -> Result<usize> {
    let (read, moves_atime) = loop {
        let state = inode.state.read();
        let len = state.size.saturating_sub(offset).min(into.len() as u64) as usize;
        let end = offset.saturating_add(len as u64);
        let pages = offset / PAGE as u64..end.div_ceil(PAGE as u64);
        if len > 0 && F::file_of(&state.part).dirty.range(pages.clone()).next().is_some() {
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
        break (len, read_moves_atime(fs, &state));
    };
    if moves_atime {
        note_read(fs, inode);
    }
    Ok(read)
}

fn read_cached<F: Files>(fs: &F, inode: &Arc<Inode<F>>, offset: u64, into: &mut [u8]) -> Result<usize> {
    let mut done = 0;
    let moves_atime = read_moves_atime(fs, &inode.state.read());
    let there = |state: &State<F>, at: u64, len: usize| state.size.saturating_sub(at).min(len as u64);
    while done < into.len() {
        let at = offset + done as u64;
        let most = (PAGES_AT_A_TIME * PAGE as u64 - at % PAGE as u64) as usize;
        let len = (into.len() - done).min(most);
        let part = &mut into[done..done + len];
        let in_memory = {
            let state = inode.state.read();
            let read = there(&state, at, len);
            F::file_of(&state.part).copy(at..at + read, &mut part[..read as usize]).then_some(read)
        };
        let read = match in_memory {
            Some(read) => read,
            None => {
                let mut state = inode.state.write();
                let read = there(&state, at, len);
                load_pages(fs, inode, &mut state, at..at + read)?;
                let all = F::file_of(&state.part).copy(at..at + read, &mut part[..read as usize]);
                fs.was_loaded(&mut state.part);
                if all { read } else { 0 }
            }
        };
        done += read as usize;
        if read < len as u64 {
            break;
        }
    }
    if moves_atime {
        note_read(fs, inode);
    }
    relieve(fs, inode)?;
    Ok(done)
}

/// Writes a file's dirty pages and its inode back.
///
/// # Errors
/// As [`Files::write_back`].
pub fn write_back_file<F: Files>(fs: &F, inode: &Arc<Inode<F>>) -> Result<()> {
    let mut state = inode.state.write();
    if state.gone || regular(inode.file_type).is_err() {
        return Ok(());
    }
    fs.write_back(inode, &mut state)
}

/// Brings the pages of a range of bytes into memory that are not there.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn load_pages<F: Files>(
    fs: &F,
    inode: &Arc<Inode<F>>,
    state: &mut State<F>,
    bytes: Range<u64>,
) -> Result<()> {
    let pages = bytes.start / PAGE as u64..bytes.end.div_ceil(PAGE as u64);
    let missing: Vec<_> = pages.filter(|page| F::file_of(&state.part).pages.get(*page).is_none()).collect();
    let (Some(first), Some(last)) = (missing.first(), missing.last()) else { return Ok(()) };
    let _gate = fs.domain(inode.ino).gate.read();
    let addresses = fs.addresses(inode, state, *first, last + 1)?;
    let block = |page: &u64| (*page, addresses[(page - first) as usize].block());
    let wanted: Vec<_> = missing.iter().map(block).collect();
    for (page, bytes) in fs.ground().read_pages(&wanted)? {
        fs.keep(inode, state, page, bytes);
    }
    Ok(())
}

/// Brings the pages of these places in a file into memory, as far as they are written in part. What lies
/// behind the end of the file is zeros.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn load_edges<F: Files>(
    fs: &F,
    inode: &Arc<Inode<F>>,
    state: &mut State<F>,
    edges: &[u64],
) -> Result<()> {
    for edge in edges {
        if !edge.is_multiple_of(PAGE as u64) && edge / PAGE as u64 * PAGE as u64 <= state.size {
            load_pages(fs, inode, state, *edge..edge + 1)?;
        }
    }
    Ok(())
}

/// Reads what the device has of pages from `first` on, past those in memory, into as many pages.
fn read_device<F: Files>(
    fs: &F,
    inode: &Inode<F>,
    state: &State<F>,
    first: u64,
    into: &mut [u8],
) -> Result<()> {
    let _gate = fs.domain(inode.ino).gate.read();
    let addresses = fs.addresses(inode, state, first, first + (into.len() / PAGE) as u64)?;
    let blocks: Vec<_> = addresses.iter().map(|address| address.block()).collect();
    fs.ground().read_runs(&blocks, into)
}

/// Writes all of `data`. Returns the number of bytes.
///
/// # Errors
/// As [`amphi_vfs::FileSystem::write`].
pub fn write<F: Files>(
    fs: &F,
    inode: &Arc<Inode<F>>,
    offset: u64,
    data: &[u8],
    mode: WriteMode,
    cred: &Cred,
) -> Result<usize> {
    regular(inode.file_type)?;
    fs.names().health.writable()?;
    if data.is_empty() {
        return Ok(0);
    }
    let mut state = inode.state.write();
    if state.gone {
        return Err(Error::Stale(inode.ino));
    }
    let offset = if mode.append { state.size } else { offset };
    let end = offset.checked_add(data.len() as u64).filter(|end| *end <= F::FILE_BYTES_MAX);
    let end = end.ok_or(Error::TooLarge)?;
    shed_capability(fs, inode, &mut state)?;
    fs.prepare(inode, &mut state, offset..end)?;
    if !F::file(&mut state.part).fill(offset, data) {
        return Err(Error::Stale(inode.ino));
    }
    state.size = state.size.max(end);
    note_write(fs, &mut state, cred);
    F::file(&mut state.part).changed = true;
    fs.cache().note_dirty(inode);
    fs.finish(inode, state, mode)?;
    relieve(fs, inode)?;
    Ok(data.len())
}

/// Writes back all that is dirty, as [`write_back_file`] does.
///
/// # Errors
/// As [`Files::write_back`].
pub fn write_back_all<F: Files>(fs: &F) -> Result<()> {
    fs.cache().dirty_files().iter().try_for_each(|inode| write_back_file(fs, inode))
}

/// After a read or write: keeps the number of pages within its limits. The caller has no lock.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn relieve<F: Files>(fs: &F, inode: &Arc<Inode<F>>) -> Result<()> {
    let cache = fs.cache();
    let limit = cache.limit;
    if cache.dirty_pages.load(Ordering::Relaxed) > limit / 2 {
        write_back_file(fs, inode)?;
        for other in cache.dirty_files() {
            if cache.dirty_pages.load(Ordering::Relaxed) <= limit / 4 {
                break;
            }
            write_back_file(fs, &other)?;
        }
    }
    if cache.pages.load(Ordering::Relaxed) > limit {
        let start = cache.sweep.load(Ordering::Relaxed);
        let next = fs.names().cache.visit(start, |inode| {
            if let Some(mut state) = inode.state.try_write() {
                cache.drop_clean(F::file(&mut state.part));
            }
            let enough = cache.pages.load(Ordering::Relaxed) <= limit - limit / 8;
            if enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        cache.sweep.store(next, Ordering::Relaxed);
    }
    Ok(())
}

/// See [`Store::lock`].
///
/// # Errors
/// As there.
pub fn lock<'a, F: Files>(inode: &'a Arc<Inode<F>>, size: Option<u64>) -> Result<Guard<'a, F>> {
    if size.is_some() {
        regular(inode.file_type)?;
    }
    Ok(inode.state.write())
}

/// Whether a file may leave memory, with its pages.
pub fn may_leave<F: Files>(fs: &F, state: &mut State<F>) -> bool {
    let file = F::file(&mut state.part);
    if !file.dirty.is_empty() || file.changed {
        return false;
    }
    fs.cache().drop_clean(file);
    true
}
