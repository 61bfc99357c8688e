//! The table of inodes is a file of its own kind (PMFS §3): its pages are found by a tree, and it grows
//! when all of its inodes are taken.

use amphi_device::{Lpa, PageView, Structure};
use amphi_direct_access::{Medium, PAGE};
use amphi_rt::sync::{Mutex, RwLock};
use amphi_vfs::{Error, Ino, Result};
use amphi_volume::io_error;
use zerocopy::{FromZeros, IntoBytes};

use crate::format::{INODE, INODES_PER_PAGE, Layout, Record, TABLE_AT};
use crate::tree::{Tree, damaged};

/// The table.
pub struct Table {
    pub tree: RwLock<Tree>,
    /// Held while it grows.
    pub growing: Mutex<()>,
}

impl Table {
    /// Reads it.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn load<D: PageView>(medium: &Medium<D>, layout: &Layout) -> Result<Self> {
        let mut record = Record::new_zeroed();
        medium.load(TABLE_AT, record.as_mut_bytes(), Structure::Inode)?;
        let blocks = record.size.get() / PAGE;
        let tree = Tree::load(medium, layout, record.root.get(), blocks)?.map_err(|what| damaged(0, what))?;
        if blocks == 0 || tree.mapped() != blocks || blocks > pages_max(layout) {
            return Err(damaged(0, "the table of inodes has no sensible size"));
        }
        Ok(Self { tree: RwLock::new(tree), growing: Mutex::new(()) })
    }

    /// Where an inode's record is.
    ///
    /// # Errors
    /// [`Error::Stale`] if the table has none of this number.
    pub fn address(&self, ino: Ino) -> Result<u64> {
        let tree = self.tree.read();
        let page = tree.blocks.get(ino.0 / INODES_PER_PAGE).filter(|_| ino.0 != 0);
        Ok(*page.ok_or(Error::Stale(ino))? * PAGE + ino.0 % INODES_PER_PAGE * INODE)
    }

    /// One more than the highest number that there is room for.
    pub fn end(&self, layout: &Layout) -> u64 {
        (self.tree.read().mapped() * INODES_PER_PAGE).min(layout.inodes + 1)
    }

    /// Its pages: first page and length of runs.
    pub fn pages(&self) -> Vec<(u64, u64)> {
        self.tree.read().pages()
    }

    /// The numbers of the inodes that are there. It is read by blocks, as it is large.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn there<D: PageView>(&self, medium: &Medium<D>, layout: &Layout) -> Result<Vec<Ino>> {
        let (tree, mut there) = (self.tree.read(), Vec::new());
        let mut bytes = vec![0; PAGE as usize];
        let mut from = 0;
        while let Some((block, page)) = tree.blocks.next(from) {
            medium.device.read(Lpa(*page), &mut bytes, Structure::Inode).map_err(io_error)?;
            let is_there = |record: &&[u8]| record[..8] != [0; 8];
            let numbers = bytes.chunks(INODE as usize).zip(block * INODES_PER_PAGE..);
            there.extend(numbers.filter(|(record, _)| is_there(record)).map(|(_, ino)| Ino(ino)));
            from = block + 1;
        }
        there.retain(|ino| (1..=layout.inodes).contains(&ino.0));
        Ok(there)
    }
}

/// Pages of a table with room for all inodes that there may be.
pub const fn pages_max(layout: &Layout) -> u64 {
    (layout.inodes + 1).div_ceil(INODES_PER_PAGE)
}
