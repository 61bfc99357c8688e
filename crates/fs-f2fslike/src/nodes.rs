//! Nodes of files: from a file's page to the word that says where it is, through the inode's node, a node of
//! pages, and for what is far behind a node of nodes.
//!
//! The caller has the gate, and the file's lock.

use std::ops::Range;
use std::sync::atomic::Ordering;

use amphi_device::BlockPort;
use amphi_segments::{Node, Parts, damaged};
use amphi_vfs::{Error, Ino, Result};

use crate::core::Core;
use crate::format::{ADDRESSES, Address, INODE, INODE_PAGES, Route, index_of, span};

/// What is done with a node's number, index and words.
pub type Visit<'a> = dyn FnMut(u32, u32, &[Address; ADDRESSES]) + 'a;

/// The node of pages (none: the inode's own), and the word there, of a file's page.
pub const fn spot(page: u64) -> (Option<u32>, usize) {
    if page < INODE_PAGES as u64 {
        return (None, page as usize);
    }
    let beyond = page - INODE_PAGES as u64;
    (Some((beyond / ADDRESSES as u64) as u32), (beyond % ADDRESSES as u64) as usize)
}

/// The first page of a node of pages.
pub const fn first_page(index: Option<u32>) -> u64 {
    match index {
        None => 0,
        Some(index) => INODE_PAGES as u64 + index as u64 * ADDRESSES as u64,
    }
}

/// The pages `pages`, cut where nodes end: of each piece the node, its words, and the first page.
pub fn pieces(pages: Range<u64>) -> impl Iterator<Item = (Option<u32>, Range<usize>, u64)> {
    let mut at = pages.start;
    std::iter::from_fn(move || {
        (at < pages.end).then(|| {
            let (index, word) = spot(at);
            let words = if index.is_none() { INODE_PAGES } else { ADDRESSES };
            let len = (words - word).min((pages.end - at).min(ADDRESSES as u64) as usize);
            let piece = (index, word..word + len, at);
            at += len as u64;
            piece
        })
    })
}

impl<D: BlockPort> Core<D> {
    /// Has a new node. Its block has been promised.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if there is no number before the next checkpoint.
    pub fn add_node(&self, parts: &mut Parts, ino: u32, index: u32) -> Result<u32> {
        let nid = parts.free_nids.pop().ok_or(Error::NoSpace)?;
        let owner = if index == INODE { nid } else { ino };
        parts.nodes.insert(nid, Node::new(Ino(owner.into()), index));
        self.dirtied.fetch_add(1, Ordering::Relaxed);
        Ok(nid)
    }

    /// A node is no more. What its words name has gone before.
    ///
    /// # Errors
    /// [`Error::Corrupt`].
    pub fn drop_node(&self, parts: &mut Parts, nid: u32) -> Result<()> {
        if parts.nodes.remove(&nid).is_some_and(|node| node.is_dirty()) {
            self.dirtied.fetch_sub(1, Ordering::Relaxed);
        }
        parts.set_node_address(nid, Address::HOLE, self.layout.segment_blocks)?;
        parts.freed_nids.push(nid);
        self.space.give_back(1);
        Ok(())
    }

    /// The node that a word of a node of this file names, in memory.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if it is another's; [`Error::Io`].
    pub fn named(&self, of: u32, word: usize, ino: u32, index: u32) -> Result<Option<u32>> {
        let nid = self.parts(&[of])?.nodes[&of].addresses[word].word();
        if nid == 0 {
            return Ok(None);
        }
        if nid >= self.layout.nids() {
            return Err(damaged("the nodes of inode", ino.into()));
        }
        let parts = self.parts(&[nid])?;
        let node = &parts.nodes[&nid];
        if node.ino.0 == u64::from(ino) && node.index == index {
            Ok(Some(nid))
        } else {
            Err(damaged("node", nid.into()))
        }
    }

    /// The file's node of pages with this index.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn node(&self, ino: u32, index: Option<u32>) -> Result<Option<u32>> {
        Ok(self.reach(ino, index)?.ok())
    }

    /// As [`node`](Self::node); where there is none, up to which index there is none for sure.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn reach(&self, ino: u32, index: Option<u32>) -> Result<std::result::Result<u32, u32>> {
        self.walk(ino, index, |of, word, index| self.named(of, word, ino, index))
    }

    /// Goes from an inode to its node of pages with this index: `next` says which node a word of a node
    /// names, whose index is this. Where there is none, up to which index there is none for sure.
    fn walk(
        &self,
        ino: u32,
        index: Option<u32>,
        mut next: impl FnMut(u32, usize, u32) -> Result<Option<u32>>,
    ) -> Result<std::result::Result<u32, u32>> {
        let Some(index) = index else { return Ok(Ok(ino)) };
        let route = Route::to(index);
        let (mut at, mut word) = (ino, route.word);
        for levels in (1..=route.levels).rev() {
            match next(at, word, route.index(levels))? {
                Some(node) => (at, word) = (node, route.word_in(levels)),
                None => return Ok(Err(route.end(levels))),
            }
        }
        Ok(next(at, word, index)?.ok_or(index + 1))
    }

    /// Calls `visit` with every further node of an inode that names pages or nodes: number, index, words.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn each_node(&self, ino: u32, visit: &mut Visit<'_>) -> Result<()> {
        Route::all()
            .try_for_each(|(word, levels, index)| self.each_below((ino, word), (ino, levels, index), visit))
    }

    /// The same for the node that a word of another names: of inode `ino`, with so many levels of nodes below
    /// it, from the node of pages `index` on.
    fn each_below(
        &self,
        (of, word): (u32, usize),
        (ino, levels, index): (u32, usize, u32),
        visit: &mut Visit<'_>,
    ) -> Result<()> {
        let own = index_of(levels, index);
        let Some(nid) = self.named(of, word, ino, own)? else { return Ok(()) };
        let words = self.parts(&[nid])?.nodes[&nid].addresses.clone();
        visit(nid, own, &words);
        let inner = if levels == 0 { 0 } else { ADDRESSES };
        (0..inner).filter(|inner| words[*inner].word() != 0).try_for_each(|inner| {
            self.each_below((nid, inner), (ino, levels - 1, index + inner as u32 * span(levels - 1)), visit)
        })
    }

    /// A word of a node names another node, or none.
    pub fn set_word(&self, parts: &mut Parts, of: u32, word: usize, nid: u32) {
        if let Some(node) = parts.nodes.get_mut(&of) {
            node.addresses[word] = Address::of_word(nid);
        }
        self.touch(parts, of);
    }

    fn named_or_new(&self, of: u32, word: usize, ino: u32, index: u32, made: &mut u64) -> Result<u32> {
        if let Some(nid) = self.named(of, word, ino, index)? {
            return Ok(nid);
        }
        let mut parts = self.parts(&[of])?;
        let nid = self.add_node(&mut parts, ino, index)?;
        *made += 1;
        self.set_word(&mut parts, of, word, nid);
        Ok(nid)
    }

    /// As [`node`](Self::node), made if it is not there. Counts what was made.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`]; [`Error::NoSpace`] if there are no numbers.
    pub fn node_or_new(&self, ino: u32, index: Option<u32>, made: &mut u64) -> Result<u32> {
        let next = |of, word, index| self.named_or_new(of, word, ino, index, made).map(Some);
        self.walk(ino, index, next)?.map_err(|_| damaged("the nodes of inode", ino.into()))
    }

    /// Where the pages `first .. end` of a file are.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn addresses(&self, ino: u32, first: u64, end: u64) -> Result<Vec<Address>> {
        let mut found = Vec::with_capacity((end - first) as usize);
        for (index, words, _) in pieces(first..end) {
            match self.node(ino, index)? {
                None => found.resize(found.len() + words.len(), Address::HOLE),
                Some(nid) => found.extend_from_slice(&self.parts(&[nid])?.nodes[&nid].addresses[words]),
            }
        }
        Ok(found)
    }

    /// Blocks that the pages of a range lack, and the nodes for them.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn lacking(&self, ino: u32, pages: Range<u64>) -> Result<u64> {
        let mut lacking = 0;
        for (index, words, _) in pieces(pages) {
            lacking += match self.node(ino, index)? {
                // With the nodes of nodes on the way.
                None => words.len() as u64 + 3,
                Some(nid) => {
                    let parts = self.parts(&[nid])?;
                    let words = &parts.nodes[&nid].addresses[words];
                    words.iter().filter(|address| address.is_hole()).count() as u64
                }
            };
        }
        Ok(lacking)
    }

    /// Holds a block for each page of a range that has none. What they lack has been promised. Returns how
    /// many pages that were, and how many nodes were made.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`]; [`Error::NoSpace`] if there are no numbers for nodes.
    pub fn hold(&self, ino: u32, pages: Range<u64>) -> Result<(u64, u64)> {
        let (mut held, mut made) = (0, 0);
        for (index, words, _) in pieces(pages) {
            let nid = self.node_or_new(ino, index, &mut made)?;
            let mut parts = self.parts(&[nid])?;
            let here = parts.hold_words(nid, words)?;
            if here > 0 {
                self.touch(&mut parts, nid);
            }
            held += here;
        }
        Ok((held, made))
    }

    /// A page has moved to a block that has been taken for it.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Io`].
    pub fn settle_page(&self, ino: u32, page: u64, block: u32) -> Result<()> {
        let (index, word) = spot(page);
        let nid = self.node(ino, index)?.ok_or_else(|| damaged("the nodes of inode", ino.into()))?;
        let mut parts = self.parts(&[nid])?;
        parts.move_page((nid, word), block, self.layout.segment_blocks)?;
        self.touch(&mut parts, nid);
        Ok(())
    }
}
