//! Where everything is: a superblock, the orphan table and the data journal once, and allocation groups of
//! 128 MB, each of which begins with the bitmaps of its own pages and inodes and with its part of the inode
//! table.
//!
//! What tasks on different processors change therefore lies far apart, also their bits and inodes: in
//! different partitions of the firmware's log, which have a lock each (ByteFS §4.3). And a file system grows
//! by whole groups, with their inodes.

use super::{FormatError, GROUP_BITS, INODE_BYTES, INODES_PER_PAGE, LINE, MIN_PAGES, PAGE};

/// Pages of an allocation group: as many as one page of the block bitmap has bits for.
pub const AG_PAGES: u64 = (PAGE * 8) as u64;
/// Fewest pages for files in the last allocation group; if the device ends before, there is no such group.
const AG_DATA_MIN: u64 = 64;
/// Bitmap lines of an allocation group's pages.
const AG_BLOCK_LINES: u64 = AG_PAGES / GROUP_BITS;
/// Pages of the orphan table: room for 16,384 files that are open or cached but have no name.
pub const ORPHAN_PAGES: u32 = 16;
/// First page of the orphan table.
const ORPHANS: u32 = 1;
/// First page of the data journal.
const JOURNAL: u32 = ORPHANS + ORPHAN_PAGES;

/// Where everything is, in pages from the start of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Pages in all.
    pub pages: u64,
    /// Inodes, number 0 included.
    pub inodes: u32,
    /// Inodes of each allocation group, a multiple of 512.
    pub ag_inodes: u32,
    /// First page of the orphan table, 4 B per slot.
    pub orphans: u32,
    /// First page of the data journal.
    pub journal: u32,
    /// Pages of the data journal, 0 for none.
    pub journal_pages: u32,
    /// Where the first allocation group's bitmaps and inodes begin. Those of the others begin with the group.
    pub first_header: u32,
}

impl Layout {
    /// The layout of a file system of at most `pages` pages, with `ag_inodes` inodes in each allocation group
    /// and a data journal of `journal_pages` pages.
    #[must_use]
    pub fn plan(pages: u64, ag_inodes: u32, journal_pages: u32) -> Self {
        let mut layout = Self {
            pages,
            inodes: 0,
            ag_inodes,
            orphans: ORPHANS,
            journal: JOURNAL,
            journal_pages,
            first_header: JOURNAL.saturating_add(journal_pages),
        };
        let last = pages % AG_PAGES;
        if pages > AG_PAGES && last < layout.header_pages() + AG_DATA_MIN {
            layout.pages -= last;
        }
        let most = u64::from(u32::MAX) / GROUP_BITS * GROUP_BITS;
        layout.inodes = (layout.ags() * u64::from(ag_inodes)).min(most) as u32;
        layout
    }

    /// The layout of the same file system when it has at most `pages` pages: what it has now stays where it
    /// is.
    #[must_use]
    pub fn grown(&self, pages: u64) -> Self {
        Self::plan(pages, self.ag_inodes, self.journal_pages)
    }

    /// Whether it is one that [`plan`](Self::plan) makes, with room for files in the first allocation group.
    ///
    /// # Errors
    /// [`FormatError::Field`].
    pub fn check(&self) -> Result<(), FormatError> {
        let wrong = |field| Err(FormatError::Field("the superblock", field));
        if self.pages < MIN_PAGES || self.pages > u64::from(u32::MAX) {
            return wrong("size");
        }
        let whole_lines = self.ag_inodes > 0 && u64::from(self.ag_inodes).is_multiple_of(GROUP_BITS);
        if !whole_lines || *self != Self::plan(self.pages, self.ag_inodes, self.journal_pages) {
            return wrong("layout");
        }
        if self.header_pages() + AG_DATA_MIN > AG_PAGES || self.ag_data(0) >= self.ag_end(0) {
            return wrong("layout");
        }
        Ok(())
    }

    /// Allocation groups.
    #[must_use]
    pub const fn ags(&self) -> u64 {
        self.pages.div_ceil(AG_PAGES)
    }

    /// Pages of bitmaps and inodes in each allocation group.
    #[must_use]
    pub fn header_pages(&self) -> u64 {
        1 + self.inode_bitmap_pages() + u64::from(self.ag_inodes).div_ceil(INODES_PER_PAGE as u64)
    }

    /// Pages of each allocation group's inode bitmap, one bit per inode.
    #[must_use]
    pub fn inode_bitmap_pages(&self) -> u64 {
        u64::from(self.ag_inodes).div_ceil(AG_PAGES)
    }

    /// An allocation group's page of the block bitmap, one bit for each of its pages.
    #[must_use]
    pub fn block_bitmap(&self, ag: u64) -> u64 {
        if ag == 0 { u64::from(self.first_header) } else { ag * AG_PAGES }
    }

    /// First page of an allocation group's inode bitmap.
    #[must_use]
    pub fn inode_bitmap(&self, ag: u64) -> u64 {
        self.block_bitmap(ag) + 1
    }

    /// First page of an allocation group's part of the inode table.
    #[must_use]
    pub fn inode_table(&self, ag: u64) -> u64 {
        self.inode_bitmap(ag) + self.inode_bitmap_pages()
    }

    /// First page of an allocation group that files may use.
    #[must_use]
    pub fn ag_data(&self, ag: u64) -> u64 {
        self.block_bitmap(ag) + self.header_pages()
    }

    /// First page behind an allocation group.
    #[must_use]
    pub fn ag_end(&self, ag: u64) -> u64 {
        ((ag + 1) * AG_PAGES).min(self.pages)
    }

    /// Pages that files cannot have.
    #[must_use]
    pub fn metadata_pages(&self) -> u64 {
        u64::from(self.first_header) + self.ags() * self.header_pages()
    }

    /// Whether all of a run of pages may belong to a file. A run lies in one allocation group, since the next
    /// begins with its header.
    #[must_use]
    pub fn holds_data(&self, first: u32, pages: u32) -> bool {
        let ag = u64::from(first) / AG_PAGES;
        u64::from(first) >= self.ag_data(ag) && u64::from(first) + u64::from(pages) <= self.ag_end(ag)
    }

    /// Page that holds an inode, and its byte offset in it: the lower half's; the upper half is the next
    /// line.
    #[must_use]
    pub fn inode_page(&self, ino: u32) -> (u64, usize) {
        let (ag, index) = (ino / self.ag_inodes, (ino % self.ag_inodes) as usize);
        let page = self.inode_table(u64::from(ag)) + (index / INODES_PER_PAGE) as u64;
        (page, index % INODES_PER_PAGE * INODE_BYTES)
    }

    /// Byte address of an inode's lower half; the upper half is the next line.
    #[must_use]
    pub fn inode_address(&self, ino: u32) -> u64 {
        let (page, offset) = self.inode_page(ino);
        page * PAGE as u64 + offset as u64
    }

    /// The first inode of a page of the inode table; none if it is another page.
    #[must_use]
    pub fn first_inode(&self, page: u64) -> Option<u32> {
        let ag = page / AG_PAGES;
        let in_table = page.checked_sub(self.inode_table(ag))? * INODES_PER_PAGE as u64;
        let ino = ag * u64::from(self.ag_inodes) + in_table;
        (in_table < u64::from(self.ag_inodes)).then(|| u32::try_from(ino).ok()).flatten()
    }

    /// Whether a byte address lies in the inode table.
    #[must_use]
    pub fn in_inode_table(&self, at: u64) -> bool {
        self.first_inode(at / PAGE as u64).is_some()
    }

    /// Page that holds an inode's bit, and the bit's number in it.
    #[must_use]
    pub fn inode_bit(&self, ino: u32) -> (u64, u64) {
        let (ag, index) = (u64::from(ino / self.ag_inodes), u64::from(ino % self.ag_inodes));
        (self.inode_bitmap(ag) + index / AG_PAGES, index % AG_PAGES)
    }

    /// Page that holds a page's bit, and the bit's number in it.
    #[must_use]
    pub fn block_bit(&self, page: u64) -> (u64, u64) {
        (self.block_bitmap(page / AG_PAGES), page % AG_PAGES)
    }

    /// Byte address of the line with the inode bits 512 × `line` and up.
    #[must_use]
    pub fn inode_line(&self, line: u64) -> u64 {
        let ag_lines = u64::from(self.ag_inodes) / GROUP_BITS;
        self.inode_bitmap(line / ag_lines) * PAGE as u64 + line % ag_lines * LINE as u64
    }

    /// Byte address of the line with the bits of the pages 512 × `line` and up.
    #[must_use]
    pub fn block_line(&self, line: u64) -> u64 {
        self.block_bitmap(line / AG_BLOCK_LINES) * PAGE as u64 + line % AG_BLOCK_LINES * LINE as u64
    }

    /// How many of these pages, the first of the 512, are never a file's.
    #[must_use]
    pub fn fixed_in_line(&self, line: u64) -> u64 {
        self.ag_data(line / AG_BLOCK_LINES).saturating_sub(line * GROUP_BITS).min(GROUP_BITS)
    }

    /// Slots in the orphan table.
    #[must_use]
    pub const fn orphan_slots() -> u32 {
        ORPHAN_PAGES * (PAGE / 4) as u32
    }
}
