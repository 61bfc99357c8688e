//! What is in memory of files' contents (AU-11), on the shared page cache, and what is counted of all files.

use std::ops::Range;
use std::sync::atomic::AtomicUsize;

use amphi_names::{Inode, Part};
use amphi_page_cache::{
    Beside, BoxedFrame, Budget, Change, DirtyFiles, Limits, Mapped, Mapping, Page, Pages, Plain, ReadAhead,
    Since,
};
use amphi_rt::sync::Mutex;
use smallvec::SmallVec;

/// Whether a block was promised for a page, which it has not yet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Promised(pub bool);

impl Beside for Promised {}

/// Pages of a write that were promised a block, ascending.
pub type Promises = SmallVec<[u64; 4]>;

/// What is in memory of a file.
#[derive(Default)]
pub struct FilePages {
    /// Cached pages.
    pub pages: Pages<BoxedFrame, Promised>,
    /// The size that the device may say: all before it has been written back.
    pub stored_size: u64,
    /// Times or set-id bits have changed in memory only.
    pub changed: bool,
    /// Changes with the contents, so that nothing is kept that was read before.
    pub(crate) version: u64,
    /// How far readers have read ahead.
    pub(crate) ahead: Mutex<ReadAhead>,
}

impl FilePages {
    /// Nothing, of a file that the device says to have this size.
    pub fn of_size(stored_size: u64) -> Self {
        Self { stored_size, ..Self::default() }
    }

    /// Copies bytes at `offset`. False if a page is not in memory.
    pub(crate) fn copy(&self, offset: u64, into: &mut [u8]) -> bool {
        self.pages.copy_out(&Unknown, offset, into)
    }

    /// A cached page of the file, to change what it holds.
    pub fn page_mut(&mut self, page: u64) -> Option<&mut [u8]> {
        self.version += 1;
        self.pages.get_mut(page).map(|page| page.data.as_mut_slice())
    }
}

/// Where a page is that is not in memory: nodes say so, which may have to be read.
struct Unknown;

impl Mapping for Unknown {
    fn map(&self, _: u64) -> Mapped {
        Mapped::At { lba: 0, pages: 1 }
    }
}

/// Copies bytes into pages, one after the other, and notes which of them were promised a block.
struct Taking<'a> {
    page: u64,
    promised: &'a [u64],
}

impl Taking<'_> {
    fn is_promised(&mut self) -> bool {
        let page = self.page;
        self.page += 1;
        let rest = self.promised.strip_prefix(&[page]);
        self.promised = rest.unwrap_or(self.promised);
        rest.is_some()
    }
}

impl Change<BoxedFrame, Promised> for Taking<'_> {
    fn change(&mut self, page: &mut Page<BoxedFrame, Promised>, from: usize, part: &[u8]) {
        Plain.change(page, from, part);
        page.beside.0 |= self.is_promised();
    }

    fn make(&mut self, from: usize, part: &[u8]) -> Page<BoxedFrame, Promised> {
        let mut page: Page<BoxedFrame, Promised> = Plain.make(from, part);
        page.beside.0 = self.is_promised();
        page
    }
}

/// What is counted of all files, and which have something that is not on the device.
pub struct FileCache {
    pub(crate) budget: Budget,
    pub(crate) dirty: DirtyFiles,
    /// Where inodes are looked through next.
    pub(crate) hand: AtomicUsize,
}

impl FileCache {
    /// An empty one with this limit, in pages.
    pub fn new(limit: usize) -> Self {
        let limits = Limits { frames: limit, drop_to: limit - limit / 64, enough: limit, dirty: limit / 2 };
        Self { budget: Budget::new(limits), dirty: DirtyFiles::default(), hand: AtomicUsize::new(0) }
    }

    /// Notes that a file has something that is not on the device.
    pub fn note_dirty<P: Part<Beside = Since>>(&self, inode: &Inode<P>) {
        self.dirty.note(inode.ino, &inode.beside);
    }

    /// Notes that it has nothing any more.
    pub fn note_clean<P: Part<Beside = Since>>(&self, inode: &Inode<P>) {
        self.dirty.remove(inode.ino, &inode.beside);
    }

    /// Puts a page that is not there into memory, as the device has it or, `dirty`, as it will have it.
    pub fn insert(&self, file: &mut FilePages, page: u64, bytes: BoxedFrame, dirty: bool) {
        file.pages.keep(&self.budget, page, Page::new(bytes, Promised(false)), dirty);
    }

    /// Takes the bytes of a write. These pages of it were promised a block.
    pub(crate) fn write(&self, file: &mut FilePages, offset: u64, data: &[u8], promised: &[u64]) {
        file.version += 1;
        let page = offset / amphi_page_cache::PAGE as u64;
        file.pages.write(&self.budget, offset, data, &mut Taking { page, promised });
    }

    /// A page that is in memory will have to be written.
    pub fn mark_dirty(&self, file: &mut FilePages, page: u64) {
        file.pages.mark_dirty(&self.budget, page);
    }

    /// All pages are as the device has them, with the blocks that they were promised.
    pub fn settle(&self, file: &mut FilePages) {
        let dirty = file.pages.take_dirty();
        file.pages.written(&self.budget, dirty, |page| page.beside.0 = false);
    }

    /// Dirty pages, ascending, are as the device has them.
    ///
    /// # Errors
    /// [`amphi_vfs::Error::Corrupt`] if one is not in memory.
    pub fn settle_pages(&self, file: &mut FilePages, pages: &[u64]) -> amphi_vfs::Result<()> {
        let left = file.pages.leave(&self.budget, pages, |_, page| {
            page.beside.0 = false;
            Ok(())
        });
        left.map(drop)
    }

    /// Drops pages that the device has, too.
    pub fn drop_clean(&self, file: &mut FilePages) {
        file.pages.drop_clean(&self.budget, usize::MAX, true);
    }

    /// Drops the pages `range`, dirty or not. Returns how many of them were promised a block.
    pub fn drop_range(&self, file: &mut FilePages, range: Range<u64>) -> u64 {
        file.version += 1;
        file.pages.discard(&self.budget, range, |_, page| page.beside.0)
    }
}
