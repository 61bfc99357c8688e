//! Numbers of inodes: the free ones, and how the table grows for more.

use amphi_device::{PageView, Structure};
use amphi_direct_access::PAGE;
use amphi_names::Change;
use amphi_vfs::{Ino, Result};

use crate::format::{INODES_PER_PAGE, TABLE_AT};
use crate::fs::PmfsLike;
use crate::table::pages_max;
use crate::tree::NODES_MAX;
use crate::tx::Tx;

/// Pages that it grows by.
const GROWTH: u64 = 4;

impl<D: PageView + 'static> PmfsLike<D> {
    /// Takes a free number; the table grows for it, if it may.
    ///
    /// # Errors
    /// [`amphi_vfs::Error::NoSpace`] if it cannot; [`amphi_vfs::Error::Io`].
    pub fn take_number(&self) -> Result<Option<Ino>> {
        loop {
            if let Some(ino) = self.numbers.take() {
                return Ok(Some(ino));
            }
            let _growing = self.table.growing.lock();
            // Somebody may have been faster.
            if self.numbers.free() == 0 && !self.grow()? {
                return Ok(None);
            }
        }
    }

    /// Has the table grow. Returns whether it could.
    fn grow(&self) -> Result<bool> {
        let first = self.table.tree.read().mapped();
        let count = GROWTH.min(pages_max(&self.layout) - first);
        if count == 0 {
            return Ok(false);
        }
        let mut tx = Tx::new(self, count + NODES_MAX, 0)?;
        let mut tree = self.table.tree.write();
        let old_root = tree.root;
        for block in first..first + count {
            let (page, _) = tx.taken.take(1);
            tx.fresh(page, Structure::Inode);
            tree.map(&mut tx, block, page)?;
        }
        if tree.root != old_root {
            tx.set_word(TABLE_AT + 8, old_root, tree.root, Structure::Inode);
        }
        tx.set_word(TABLE_AT + 16, first * PAGE, (first + count) * PAGE, Structure::Inode);
        drop(tree);
        tx.commit()?;
        let numbers = first * INODES_PER_PAGE..self.table.end(&self.layout);
        numbers.rev().for_each(|ino| self.numbers.give(Ino(ino)));
        Ok(true)
    }
}
