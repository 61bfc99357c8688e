//! [`PmfsLike`]: the mounted file system, and what it says of itself.

use std::ops::{Deref, Range};
use std::sync::Arc;

use amphi_device::{PageView, Structure};
use amphi_direct_access::{DirectAccess, Ground, Layout as _, Medium, PAGE};
use amphi_names::Child;
use amphi_vfs::{Allocate, Cred, FileType, Ino, Result};
use amphi_volume::{FormatOptions, Identity, Needs};
use zerocopy::{FromZeros, IntoBytes};

use crate::dir::first_block;
use crate::format::{
    INODE, INODES_PER_PAGE, LOG_AT, LOG_PAGES, Layout, MAGIC, Record, SAME_TIME, TABLE_AT, log_word,
    record_checksum, root_word, valid_word,
};
use crate::inode::{self, Inode, Part, State};
use crate::log::Log;
use crate::table::Table;

/// What it is called and what it asks of a device.
pub const IDENTITY: Identity = Identity {
    name: "pmfslike",
    title: "PMFS-like",
    summary: "A file system of PMFS's kind: metadata in place under an undo log, data in place, bytes alone",
    words: "none",
    needs: Needs::PageView,
};

/// Pages of the device for each page of the log, unless told otherwise.
const PAGES_PER_LOG_PAGE: u64 = 256;

/// A mounted file system of PMFS's kind.
///
/// Dropping it without an unmount is a crash of the file system: what was acknowledged is there after the
/// next mount.
pub struct PmfsLike<D: PageView + 'static>(Ground<Self>);

amphi_direct_access::file_system!(PmfsLike);

impl<D: PageView + 'static> Deref for PmfsLike<D> {
    type Target = Ground<Self>;

    fn deref(&self) -> &Ground<Self> {
        &self.0
    }
}

impl<D: PageView + 'static> PmfsLike<D> {
    /// The device under the file system.
    pub fn device(&self) -> &Arc<D> {
        &self.medium.device
    }

    /// Barriers that it has waited for: fences with their write-verify reads.
    pub fn barriers(&self) -> u64 {
        self.medium.barriers()
    }
}

fn root(block: u64) -> Record {
    let now = amphi_rt::time::wall_ns();
    let mut root = Record::new_zeroed();
    let valid = valid_word(FileType::Directory, 0);
    (root.valid, root.root, root.size) = (valid.into(), root_word(block, 0).into(), PAGE.into());
    (root.mtime, root.ctime, root.atime) = (now.into(), SAME_TIME.into(), now.into());
    (root.nlink, root.mode) = (2.into(), 0o755.into());
    root.crc = record_checksum(Ino::ROOT.0, valid, 0).into();
    root
}

impl<D: PageView + 'static> DirectAccess for PmfsLike<D> {
    type Device = D;
    type Layout = Layout;
    type Log = Log;
    type Table = Table;

    const IDENTITY: Identity = IDENTITY;
    const MAGIC: [u8; 8] = MAGIC;
    const ATOMIC_WRITES: bool = false;

    fn plan(pages: u64, inodes: u64, options: &FormatOptions) -> std::result::Result<Layout, String> {
        let log_pages = options.journal_bytes.map_or(pages / PAGES_PER_LOG_PAGE, |bytes| bytes / PAGE);
        let log_pages = log_pages.clamp(*LOG_PAGES.start(), *LOG_PAGES.end());
        if inodes >= pages * INODES_PER_PAGE {
            return Err(format!("{inodes} inodes are more than {pages} pages hold"));
        }
        Ok(Layout { pages, inodes, log_pages })
    }

    /// With the table's first page, which is behind the log.
    fn zeros(layout: &Layout) -> u64 {
        layout.data() + 1
    }

    fn journal_bytes(layout: &Layout) -> u64 {
        layout.log_pages * PAGE
    }

    fn fill(medium: &Medium<D>, layout: &Layout) -> Result<()> {
        // Behind the log the table's first page, then the root's first block.
        let (table, block) = (layout.data(), layout.data() + 1);
        medium.store(block * PAGE, &first_block(Ino::ROOT, Ino::ROOT)[..], Structure::Dentry)?;
        medium.store(table * PAGE + Ino::ROOT.0 * INODE, root(block).as_bytes(), Structure::Inode)?;
        let mut record = Record::new_zeroed();
        (record.root, record.size) = (root_word(table, 0).into(), PAGE.into());
        medium.store(TABLE_AT, record.as_bytes(), Structure::Inode)?;
        medium.store_word(LOG_AT, log_word(0, 1), Structure::Journal)
    }

    fn undo(medium: &Medium<D>, layout: &Layout) -> Result<Log> {
        Log::recover(medium, layout)
    }

    fn table(medium: &Medium<D>, layout: &Layout) -> Result<Table> {
        Table::load(medium, layout)
    }

    fn pages_of_table(table: &Table) -> Vec<(u64, u64)> {
        table.pages()
    }

    fn numbers_end(layout: &Layout, table: &Table) -> u64 {
        table.end(layout)
    }

    fn parts(_: &Layout) -> u64 {
        1
    }

    fn there(medium: &Medium<D>, layout: &Layout, table: &Table) -> Result<Vec<Ino>> {
        table.there(medium, layout)
    }

    fn read_inode(medium: &Medium<D>, layout: &Layout, table: &Table, ino: Ino) -> Result<Inode> {
        inode::load(medium, layout, ino, table.address(ino)?)
    }

    fn pages(part: &Part) -> Vec<(u64, u64)> {
        part.pages()
    }

    fn attributes_at(part: &Part) -> (u64, usize) {
        part.attributes_at()
    }

    fn children(part: &Part) -> impl Iterator<Item = Child> {
        part.dir.children()
    }

    fn page(part: &Part, block: u64) -> Option<u64> {
        part.tree.blocks.get(block).copied()
    }

    fn next_block(part: &Part, from: u64) -> Option<u64> {
        part.tree.blocks.next(from).map(|(block, _)| block)
    }

    fn mounted(ground: Ground<Self>) -> Self {
        Self(ground)
    }

    fn ground(&self) -> &Ground<Self> {
        &self.0
    }

    fn write_range(
        &self,
        inode: &Inode,
        state: &mut State,
        range: Range<u64>,
        data: &[u8],
        cred: &Cred,
    ) -> Result<()> {
        self.write_file(inode, state, range, data, cred)
    }

    fn allocate_range(
        &self,
        inode: &Inode,
        state: &mut State,
        range: Range<u64>,
        what: Allocate,
        cred: &Cred,
    ) -> Result<()> {
        self.allocate_file(inode, state, range, what, cred)
    }
}
