//! [`NovaLike`]: the mounted file system, and what it says of itself.

use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use amphi_device::{Lpa, PageView, Structure};
use amphi_direct_access::{DirectAccess, Ground, Layout as _, Medium, PAGE};
use amphi_names::Child;
use amphi_rt::cpu;
use amphi_vfs::{Allocate, Cred, FileType, Ino, Result};
use amphi_volume::{FormatOptions, Identity, Needs, io_error};
use zerocopy::{FromZeros, IntoBytes};

use crate::format::{
    ATTR, EntryHead, INODE, InodeHead, LANES_MAX, Layout, MAGIC, head_checksum, seal, valid_word,
};
use crate::journal::Journal;
use crate::log::{self, Inode, Part, State};

/// What it is called and what it asks of a device.
pub const IDENTITY: Identity = Identity {
    name: "novalike",
    title: "NOVA-like",
    summary: "A file system of NOVA's kind: a log for each inode, copy on write, bytes alone",
    words: "none",
    needs: Needs::PageView,
};

/// Pages of the table of inodes that are read by one command.
const TABLE_PAGES_AT_A_TIME: u64 = 256;

/// A mounted file system of NOVA's kind.
///
/// Dropping it without an unmount is a crash of the file system: what was acknowledged is there after the
/// next mount.
pub struct NovaLike<D: PageView + 'static> {
    ground: Ground<Self>,
    unlinked: AtomicU64,
    rewritten: AtomicU64,
}

amphi_direct_access::file_system!(NovaLike);

impl<D: PageView + 'static> Deref for NovaLike<D> {
    type Target = Ground<Self>;

    fn deref(&self) -> &Ground<Self> {
        &self.ground
    }
}

impl<D: PageView + 'static> NovaLike<D> {
    /// The device under the file system.
    pub fn device(&self) -> &Arc<D> {
        &self.medium.device
    }

    /// Barriers that it has waited for: fences with their write-verify reads.
    pub fn barriers(&self) -> u64 {
        self.medium.barriers()
    }

    /// Pages that collection has freed: unlinked ones, and those of logs that were written anew.
    pub fn pages_collected(&self) -> (u64, u64) {
        (self.unlinked.load(Ordering::Relaxed), self.rewritten.load(Ordering::Relaxed))
    }

    pub(crate) fn collected(&self, pages: u64, anew: bool) {
        let counter = if anew { &self.rewritten } else { &self.unlinked };
        counter.fetch_add(pages, Ordering::Relaxed);
    }
}

fn root() -> InodeHead {
    let now = amphi_rt::time::wall_ns();
    let mut root = InodeHead::new_zeroed();
    root.valid = valid_word(FileType::Directory, 0).into();
    root.crc = head_checksum(Ino::ROOT.0, 0).into();
    let first = &mut root.first;
    first.head = EntryHead { kind: ATTR, slots: 1, ..EntryHead::new_zeroed() };
    (first.mode, first.nlink, first.parent) = (0o755.into(), 2.into(), (Ino::ROOT.0 as u32).into());
    (first.atime, first.mtime, first.ctime) = (now.into(), now.into(), now.into());
    seal(Ino::ROOT.0, first.as_mut_bytes());
    root
}

impl<D: PageView + 'static> DirectAccess for NovaLike<D> {
    type Device = D;
    type Layout = Layout;
    type Log = Journal;
    type Table = ();

    const IDENTITY: Identity = IDENTITY;
    const MAGIC: [u8; 8] = MAGIC;
    const ATOMIC_WRITES: bool = true;

    fn plan(pages: u64, inodes: u64, _: &FormatOptions) -> std::result::Result<Layout, String> {
        Ok(Layout { pages, inodes, lanes: (cpu::count() as u64).clamp(1, LANES_MAX) })
    }

    fn zeros(layout: &Layout) -> u64 {
        layout.data()
    }

    fn journal_bytes(layout: &Layout) -> u64 {
        layout.lanes * PAGE
    }

    fn fill(medium: &Medium<D>, layout: &Layout) -> Result<()> {
        medium.store(layout.inode(Ino::ROOT.0), root().as_bytes(), Structure::Inode)
    }

    fn undo(medium: &Medium<D>, layout: &Layout) -> Result<Journal> {
        Journal::recover(medium, layout)
    }

    fn table(_: &Medium<D>, _: &Layout) -> Result<()> {
        // It has a fixed place.
        Ok(())
    }

    fn pages_of_table((): &()) -> Vec<(u64, u64)> {
        Vec::new()
    }

    fn numbers_end(layout: &Layout, (): &()) -> u64 {
        layout.inodes + 1
    }

    fn parts(layout: &Layout) -> u64 {
        layout.lanes
    }

    /// The table is read by blocks, as it is large.
    fn there(medium: &Medium<D>, layout: &Layout, (): &()) -> Result<Vec<Ino>> {
        let mut there = Vec::new();
        let mut bytes = vec![0; (TABLE_PAGES_AT_A_TIME * PAGE) as usize];
        let (mut page, per_page) = (layout.table(), PAGE / INODE);
        while page < layout.data() {
            let count = TABLE_PAGES_AT_A_TIME.min(layout.data() - page);
            let bytes = &mut bytes[..(count * PAGE) as usize];
            medium.device.read(Lpa(page), bytes, Structure::Inode).map_err(io_error)?;
            let first = (page - layout.table()) * per_page;
            let is_there = |head: &&[u8]| head[..8] != [0; 8];
            let numbers = bytes.chunks(INODE as usize).zip(first..);
            there.extend(numbers.filter(|(head, _)| is_there(head)).map(|(_, ino)| Ino(ino)));
            page += count;
        }
        there.retain(|ino| (1..=layout.inodes).contains(&ino.0));
        Ok(there)
    }

    fn read_inode(medium: &Medium<D>, layout: &Layout, (): &(), ino: Ino) -> Result<Inode> {
        log::load(medium, layout, ino)
    }

    fn pages(part: &Part) -> Vec<(u64, u64)> {
        part.pages()
    }

    fn attributes_at(part: &Part) -> (u64, usize) {
        (part.attr.attributes_page.get().into(), part.attr.attributes_bytes.get().into())
    }

    fn children(part: &Part) -> impl Iterator<Item = Child> {
        part.names.by_name.values().map(|named| named.child)
    }

    fn page(part: &Part, block: u64) -> Option<u64> {
        part.blocks.get(block).map(|block| block.page)
    }

    fn next_block(part: &Part, from: u64) -> Option<u64> {
        part.blocks.next(from).map(|(block, _)| block)
    }

    fn mounted(ground: Ground<Self>) -> Self {
        Self { ground, unlinked: AtomicU64::new(0), rewritten: AtomicU64::new(0) }
    }

    fn ground(&self) -> &Ground<Self> {
        &self.ground
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
