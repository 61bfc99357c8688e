//! Pages of files, and files, that go.

use std::ops::Range;

use amphi_device::BlockPort;
use amphi_segments::Parts;
use amphi_vfs::{FileType, Result};

use crate::core::Core;
use crate::format::{
    ADDRESSES, INODE, INODE_PAGES, InodeRecord, LINK, LINK_BYTES, LINK_WORD, Route, TYPES, address_words,
    index_of, span,
};
use crate::nodes::{first_page, pieces};

impl<D: BlockPort> Core<D> {
    /// Words of a node become holes. Returns how many were none.
    fn clear(&self, parts: &mut Parts, nid: u32, words: Range<usize>) -> Result<u64> {
        let cleared = parts.clear_words(nid, words, self.layout.segment_blocks)?;
        if cleared > 0 {
            self.touch(parts, nid);
        }
        self.space.give_back(cleared);
        Ok(cleared)
    }

    /// Pages become holes. Nodes stay. Returns how many were none.
    ///
    /// # Errors
    /// [`amphi_vfs::Error::Corrupt`], [`amphi_vfs::Error::Io`].
    pub fn punch(&self, ino: u32, pages: Range<u64>) -> Result<u64> {
        let mut cleared = 0;
        for (index, words, _) in pieces(pages) {
            if let Some(nid) = self.node(ino, index)? {
                let mut parts = self.parts(&[nid])?;
                cleared += self.clear(&mut parts, nid, words)?;
            }
        }
        Ok(cleared)
    }

    /// An inode is no more, with all that it holds.
    ///
    /// # Errors
    /// [`amphi_vfs::Error::Corrupt`], [`amphi_vfs::Error::Io`].
    pub fn free_inode(&self, ino: u32, record: &InodeRecord) -> Result<()> {
        match TYPES.file_type(record.head.kind) {
            Some(FileType::Regular | FileType::Directory) => drop(self.cut(ino, 0)?),
            Some(FileType::Symlink) if record.head.size.get() > LINK_BYTES as u64 => {
                if let Some(rest) = self.named(ino, LINK_WORD, ino, LINK)? {
                    self.drop_node(&mut *self.parts(&[rest])?, rest)?;
                }
            }
            _ => {}
        }
        let xattr = record.xattr.get();
        if xattr != 0 {
            self.drop_node(&mut *self.parts(&[xattr])?, xattr)?;
        }
        self.drop_node(&mut self.domain.parts.lock(), ino)
    }

    /// All pages from `first` on become holes, and nodes go that name none then. Returns how many pages were
    /// none.
    ///
    /// # Errors
    /// [`amphi_vfs::Error::Corrupt`], [`amphi_vfs::Error::Io`].
    pub fn cut(&self, ino: u32, first: u64) -> Result<u64> {
        let mut cleared = 0;
        if first < INODE_PAGES as u64 {
            let mut parts = self.parts(&[ino])?;
            let words = address_words(INODE, &parts.nodes[&ino].addresses);
            cleared += self.clear(&mut parts, ino, words.end.min(first as usize)..words.end)?;
        }
        for (word, levels, index) in Route::all() {
            cleared += self.cut_below((ino, word), (ino, levels, index), first)?.0;
        }
        Ok(cleared)
    }

    /// Cuts what is below the node that a word of another names: of inode `ino`, with so many levels of nodes
    /// below it, from the node of pages `index` on. Returns how many pages went, and whether the node is not
    /// there any more.
    fn cut_below(
        &self,
        (of, word): (u32, usize),
        (ino, levels, index): (u32, usize, u32),
        first: u64,
    ) -> Result<(u64, bool)> {
        if self.parts(&[of])?.nodes[&of].addresses[word].word() == 0 {
            return Ok((0, true));
        }
        let start = first_page(Some(index));
        if first_page(Some(index + span(levels))) <= first {
            return Ok((0, false));
        }
        let Some(nid) = self.named(of, word, ino, index_of(levels, index))? else { return Ok((0, true)) };
        let (mut cleared, mut goes) = (0, start >= first);
        if levels == 0 {
            let words = first.saturating_sub(start) as usize..ADDRESSES;
            cleared += self.clear(&mut *self.parts(&[nid])?, nid, words)?;
        } else {
            for inner in 0..ADDRESSES {
                let below = (ino, levels - 1, index + inner as u32 * span(levels - 1));
                let (here, gone) = self.cut_below((nid, inner), below, first)?;
                cleared += here;
                goes &= gone;
            }
        }
        if goes {
            let mut parts = self.parts(&[of])?;
            self.set_word(&mut parts, of, word, 0);
            self.drop_node(&mut parts, nid)?;
        }
        Ok((cleared, goes))
    }
}
