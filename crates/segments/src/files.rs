//! Pages of files in host memory, in a radix tree for each file (AU-11): which are dirty, how many there may
//! be, who writes back when there are too many. Where a page is on the device the file system says
//! ([`Files`]).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use amphi_names::{Inode, State, Store, note_read, read_moves_atime, regular};
use amphi_radix::Radix;
use amphi_rt::sync::Mutex;
use amphi_vfs::{Error, Ino, Result};

use crate::format::PAGE;

/// Most pages that one turn of a read brings into memory.
const PAGES_AT_A_TIME: u64 = 256;

/// A cached page of a file.
pub struct Page {
    /// Contents.
    pub bytes: Box<[u8]>,
    /// Not written back since it changed.
    pub dirty: bool,
    /// A block was promised for it, which it has not yet.
    pub promised: bool,
}

/// What is in memory of a file.
#[derive(Default)]
pub struct FilePages {
    /// Cached pages, by number.
    pub pages: Radix<Page>,
    /// Dirty ones.
    pub dirty: BTreeSet<u64>,
}

/// Calls `body` with each page that a range of bytes touches, and the part of it.
pub fn by_page(range: Range<u64>, mut body: impl FnMut(u64, Range<usize>)) {
    let mut at = range.start;
    while at < range.end {
        let within = at as usize % PAGE;
        let len = (PAGE - within).min((range.end - at) as usize);
        body(at / PAGE as u64, within..within + len);
        at += len as u64;
    }
}

impl FilePages {
    /// Copies a range of bytes. False if a page is not in memory.
    fn copy(&self, bytes: Range<u64>, into: &mut [u8]) -> bool {
        let mut rest = into;
        let mut all = true;
        by_page(bytes, |page, range| {
            let (part, behind) = std::mem::take(&mut rest).split_at_mut(range.len());
            match self.pages.get(page) {
                Some(page) => part.copy_from_slice(&page.bytes[range]),
                None => all = false,
            }
            rest = behind;
        });
        all
    }

    /// Copies data into pages. False if one is not in memory.
    pub fn fill(&mut self, offset: u64, data: &[u8]) -> bool {
        let mut rest = data;
        let mut all = true;
        by_page(offset..offset + data.len() as u64, |page, range| {
            let (part, behind) = rest.split_at(range.len());
            match self.pages.get_mut(page) {
                Some(page) => page.bytes[range].copy_from_slice(part),
                None => all = false,
            }
            rest = behind;
        });
        all
    }
}

/// What is counted of all files, and which have something that is not on the device.
pub struct FileCache<S: Store> {
    /// Pages of files in host memory that there may be.
    limit: usize,
    pages: AtomicUsize,
    dirty_pages: AtomicUsize,
    /// Where inodes are looked through next.
    sweep: AtomicUsize,
    dirty: Mutex<BTreeMap<Ino, Arc<Inode<S>>>>,
}

impl<S: Store> FileCache<S> {
    /// An empty one with this limit, in pages.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            pages: AtomicUsize::new(0),
            dirty_pages: AtomicUsize::new(0),
            sweep: AtomicUsize::new(0),
            dirty: Mutex::default(),
        }
    }

    /// Notes that a file has something that is not on the device.
    pub fn note_dirty(&self, inode: &Arc<Inode<S>>) {
        self.dirty.lock().entry(inode.ino).or_insert_with(|| Arc::clone(inode));
    }

    /// Notes that it has nothing any more.
    pub fn note_clean(&self, ino: Ino) {
        self.dirty.lock().remove(&ino);
    }

    /// Whether a file has something that is not on the device.
    pub fn is_dirty(&self, ino: Ino) -> bool {
        self.dirty.lock().contains_key(&ino)
    }

    /// The files that have.
    pub fn dirty_files(&self) -> Vec<Arc<Inode<S>>> {
        self.dirty.lock().values().cloned().collect()
    }

    /// Puts a page that is not there into memory, clean.
    pub fn insert(&self, file: &mut FilePages, page: u64, bytes: Box<[u8]>) {
        self.pages.fetch_add(1, Ordering::Relaxed);
        file.pages.insert(page, Page { bytes, dirty: false, promised: false });
    }

    /// A page of zeros, if it is not in memory yet, and dirty: it will be written.
    pub fn begin_write(&self, file: &mut FilePages, page: u64) {
        if file.pages.get(page).is_none() {
            self.insert(file, page, vec![0; PAGE].into());
        }
        self.mark_dirty(file, page);
    }

    /// A page that is in memory will have to be written.
    pub fn mark_dirty(&self, file: &mut FilePages, page: u64) {
        if let Some(cached) = file.pages.get_mut(page)
            && !std::mem::replace(&mut cached.dirty, true)
        {
            self.dirty_pages.fetch_add(1, Ordering::Relaxed);
            file.dirty.insert(page);
        }
    }

    /// Pages are as the device has them, with the blocks that they were promised.
    pub fn settle(&self, file: &mut FilePages, pages: &[u64]) {
        for page in pages {
            file.dirty.remove(page);
            if let Some(cached) = file.pages.get_mut(*page) {
                (cached.dirty, cached.promised) = (false, false);
            }
        }
        self.dirty_pages.fetch_sub(pages.len(), Ordering::Relaxed);
    }

    /// Drops pages that the device has, too.
    pub fn drop_clean(&self, file: &mut FilePages) {
        let before = file.pages.len();
        file.pages.retain(|_, page| page.dirty);
        self.pages.fetch_sub(before - file.pages.len(), Ordering::Relaxed);
    }

    /// Drops the pages `range`, dirty or not. Returns how many of them were promised a block.
    pub fn drop_range(&self, file: &mut FilePages, range: &Range<u64>) -> u64 {
        let (before, mut dirty, mut promised) = (file.pages.len(), 0, 0);
        file.pages.retain(|number, page| {
            let goes = range.contains(&number);
            dirty += usize::from(goes && page.dirty);
            promised += u64::from(goes && page.promised);
            !goes
        });
        file.dirty.retain(|page| !range.contains(page));
        self.pages.fetch_sub(before - file.pages.len(), Ordering::Relaxed);
        self.dirty_pages.fetch_sub(dirty, Ordering::Relaxed);
        promised
    }
}

/// A file system whose files' pages are kept here.
pub trait Files: Store {
    /// What is counted of all files.
    fn cache(&self) -> &FileCache<Self>;

    /// What is in memory of a file.
    fn file(part: &mut Self::Part) -> &mut FilePages;

    /// See [`file`](Self::file).
    fn file_of(part: &Self::Part) -> &FilePages;

    /// Brings the pages of a range of bytes into memory that are not there.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    fn load_pages(&self, inode: &Arc<Inode<Self>>, state: &mut State<Self>, bytes: Range<u64>) -> Result<()>;

    /// Reads what the device has of pages from `first` on, past those in memory, into as many pages.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    fn read_device(
        &self,
        inode: &Inode<Self>,
        state: &State<Self>,
        first: u64,
        into: &mut [u8],
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
            fs.read_device(inode, &state, pages.start, &mut into[..len])?;
        } else if len > 0 {
            let mut whole = vec![0; (pages.end - pages.start) as usize * PAGE];
            fs.read_device(inode, &state, pages.start, &mut whole)?;
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
                fs.load_pages(inode, &mut state, at..at + read)?;
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

/// Has a part of one page read as zeros, which has a block on the device or not. A page that is nowhere stays
/// so.
///
/// # Errors
/// [`Error::Corrupt`], [`Error::Io`].
pub fn zero_in_page<F: Files>(
    fs: &F,
    inode: &Arc<Inode<F>>,
    state: &mut State<F>,
    bytes: Range<u64>,
    has_block: bool,
) -> Result<()> {
    let page = bytes.start / PAGE as u64;
    if !has_block && !F::file_of(&state.part).dirty.contains(&page) {
        return Ok(());
    }
    fs.load_pages(inode, state, bytes.start..bytes.start + 1)?;
    let file = F::file(&mut state.part);
    let cached = file.pages.get_mut(page).ok_or(Error::Stale(inode.ino))?;
    let start = bytes.start as usize % PAGE;
    cached.bytes[start..start + (bytes.end - bytes.start) as usize].fill(0);
    fs.cache().mark_dirty(file, page);
    Ok(())
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
