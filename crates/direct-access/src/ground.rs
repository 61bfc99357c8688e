//! What a file system says of itself ([`DirectAccess`]), and what is kept for a mounted one ([`Ground`]).

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use amphi_device::PageView;
use amphi_names::{Child, Inode, Names, Part, State, Store};
use amphi_vfs::{Allocate, Cred, Ino, Result};
use amphi_volume::{FormatOptions, Identity};

use crate::format::Superblock;
use crate::medium::Medium;
use crate::space::{Numbers, Space};

/// Where a file system has what, by the three numbers of its superblock.
pub trait Layout: Copy + Send + Sync {
    /// That of a superblock; none if its numbers make no sense together.
    fn of(pages: u64, inodes: u64, own: u64) -> Option<Self>;

    /// Pages, inodes, and the number of its own.
    fn numbers(&self) -> (u64, u64, u64);

    /// First page that has no fixed place.
    fn data(&self) -> u64;

    /// Whether pages are none of those with a fixed place.
    fn holds(&self, first: u64, count: u64) -> bool {
        first >= self.data() && first.checked_add(count).is_some_and(|end| end <= self.numbers().0)
    }
}

/// A file system that has everything in bytes of the device.
pub trait DirectAccess: Store<Slot = (), Place = (), Part: Part<Beside = ()>> {
    /// What it lies on.
    type Device: PageView + 'static;
    /// Where it has what.
    type Layout: Layout;
    /// What makes its changes whole: an undo log, journals.
    type Log: Send + Sync;
    /// Where its inodes are.
    type Table: Send + Sync;

    /// What it is called and what it asks of a device.
    const IDENTITY: Identity;
    /// What its superblock starts with.
    const MAGIC: [u8; 8];
    /// Whether a crash leaves all of a write or none of it.
    const ATOMIC_WRITES: bool;

    /// Lays out a new one.
    ///
    /// # Errors
    /// Why it cannot be.
    fn plan(pages: u64, inodes: u64, options: &FormatOptions) -> std::result::Result<Self::Layout, String>;

    /// Pages from page 0 on that are zeros in a new one.
    fn zeros(layout: &Self::Layout) -> u64;

    /// Bytes of its journal or log.
    fn journal_bytes(layout: &Self::Layout) -> u64;

    /// Stores the root and what else an empty one has, where it is zeros.
    ///
    /// # Errors
    /// [`amphi_vfs::Error::Io`].
    fn fill(medium: &Medium<Self::Device>, layout: &Self::Layout) -> Result<()>;

    /// Undoes what was open when the device was last used.
    ///
    /// # Errors
    /// [`amphi_vfs::Error::Corrupt`], [`amphi_vfs::Error::Io`].
    fn undo(medium: &Medium<Self::Device>, layout: &Self::Layout) -> Result<Self::Log>;

    /// Reads where inodes are.
    ///
    /// # Errors
    /// [`amphi_vfs::Error::Corrupt`], [`amphi_vfs::Error::Io`].
    fn table(medium: &Medium<Self::Device>, layout: &Self::Layout) -> Result<Self::Table>;

    /// The table's own pages: first page and length of runs.
    fn pages_of_table(table: &Self::Table) -> Vec<(u64, u64)>;

    /// One more than the highest number that the table has room for.
    fn numbers_end(layout: &Self::Layout, table: &Self::Table) -> u64;

    /// In how many parts free pages and numbers are kept.
    fn parts(layout: &Self::Layout) -> u64;

    /// The numbers of the inodes that are there.
    ///
    /// # Errors
    /// [`amphi_vfs::Error::Io`].
    fn there(medium: &Medium<Self::Device>, layout: &Self::Layout, table: &Self::Table) -> Result<Vec<Ino>>;

    /// Reads an inode.
    ///
    /// # Errors
    /// As [`Store::load`].
    fn read_inode(
        medium: &Medium<Self::Device>,
        layout: &Self::Layout,
        table: &Self::Table,
        ino: Ino,
    ) -> Result<Inode<Self::Part>>;

    /// Pages of an inode: first page and length of runs.
    fn pages(part: &Self::Part) -> Vec<(u64, u64)>;

    /// Where an inode's extended attributes are, 0 for nowhere, and how many bytes they have.
    fn attributes_at(part: &Self::Part) -> (u64, usize);

    /// What a directory names.
    fn children(part: &Self::Part) -> impl Iterator<Item = Child>;

    /// The page of a file's block.
    fn page(part: &Self::Part, block: u64) -> Option<u64>;

    /// The first block that has a page, from one on.
    fn next_block(part: &Self::Part, from: u64) -> Option<u64>;

    /// The mounted file system.
    fn mounted(ground: Ground<Self>) -> Self;

    /// What is kept for it.
    fn ground(&self) -> &Ground<Self>;

    /// Writes all of `data` into a range, which is not empty and ends where a file may.
    ///
    /// # Errors
    /// [`amphi_vfs::Error::NoSpace`]; then nothing has changed. [`amphi_vfs::Error::Io`].
    fn write_range(
        &self,
        inode: &Inode<Self::Part>,
        state: &mut State<Self::Part>,
        range: Range<u64>,
        data: &[u8],
        cred: &Cred,
    ) -> Result<()>;

    /// Holds space for a range, makes it a hole, or zeros.
    ///
    /// # Errors
    /// [`amphi_vfs::Error::NoSpace`]; then nothing has changed. [`amphi_vfs::Error::Io`].
    fn allocate_range(
        &self,
        inode: &Inode<Self::Part>,
        state: &mut State<Self::Part>,
        range: Range<u64>,
        what: Allocate,
        cred: &Cred,
    ) -> Result<()>;
}

/// What is kept for a mounted file system.
pub struct Ground<F: DirectAccess> {
    /// The device.
    pub medium: Medium<F::Device>,
    /// Where what is.
    pub layout: F::Layout,
    /// What makes changes whole.
    pub log: F::Log,
    /// Where inodes are.
    pub table: F::Table,
    /// What is kept for names.
    pub names: Names<F::Part>,
    /// Free pages.
    pub space: Space,
    /// Free numbers of inodes.
    pub numbers: Numbers,
    pub(crate) superblock: Superblock,
    pub(crate) mounts: u64,
    pub(crate) was_clean: bool,
    pub(crate) changes: AtomicU64,
}

impl<F: DirectAccess> Ground<F> {
    pub(crate) fn next_change(&self) -> u64 {
        self.changes.fetch_add(1, Ordering::Relaxed)
    }
}
