//! Pages of files in host memory, in a radix tree for each file (AU-11), and what is counted of them all:
//! how many there are, which are dirty, which files have any.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use amphi_names::{Inode, Store};
use amphi_radix::Radix;
use amphi_rt::sync::Mutex;
use amphi_vfs::Ino;

use crate::format::PAGE;

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
    /// The size that the device may say: all before it has been written back.
    pub stored_size: u64,
    /// Times or set-id bits have changed in memory only.
    pub changed: bool,
}

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

impl FilePages {
    /// Nothing, of a file that the device says to have this size.
    pub fn of_size(stored_size: u64) -> Self {
        Self { stored_size, ..Self::default() }
    }

    /// Copies a range of bytes. False if a page is not in memory.
    pub(crate) fn copy(&self, bytes: Range<u64>, into: &mut [u8]) -> bool {
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
    pub(crate) limit: usize,
    pub(crate) pages: AtomicUsize,
    pub(crate) dirty_pages: AtomicUsize,
    /// Where inodes are looked through next.
    pub(crate) sweep: AtomicUsize,
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
