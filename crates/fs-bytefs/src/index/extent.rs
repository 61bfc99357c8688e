//! Extent trees (BY-12): which blocks hold which pages of a file.
//!
//! The root has up to three entries and lives in the inode's upper half; below it come nodes of up to 255
//! entries, one page each. The whole tree of a cached inode is in host DRAM. A change marks the nodes it
//! touches; [`ExtentTree::flush`] encodes those and adds only the lines that differ from what the device
//! holds to the transaction.
//!
//! Invariants: keys ascend strictly; a child's first key equals the key of the entry that points to it;
//! extents neither overlap nor are empty; only the root may have no entries. Nodes that become empty are
//! freed; nodes are not merged otherwise, as in ext4.

mod node;

use amphi_device::{BlockPort, WriteLog};
use amphi_page_cache::{Mapped, Mapping};
use amphi_vfs::Result;

use crate::base::Base;
use crate::commit::tx::Tx;
use crate::format::{Extent, InodeUpper, ROOT_ENTRIES};
pub use node::{FILE_PAGES_MAX, Removed};
use node::{Node, corrupt, pointer};

/// The extent tree of one inode.
pub struct ExtentTree {
    root: Node,
    nodes: u32,
}

impl Default for ExtentTree {
    fn default() -> Self {
        Self { root: Node::new(0, 0), nodes: 0 }
    }
}

impl Mapping for ExtentTree {
    fn map(&self, file_page: u64) -> Mapped {
        self.root.map(file_page, u64::MAX)
    }
}

impl ExtentTree {
    /// Reads and checks the tree whose root is in `upper`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] saying what is wrong; [`Error::Io`].
    pub fn load<D: BlockPort + WriteLog>(base: &Base<D>, ino: u32, upper: &InodeUpper) -> Result<Self> {
        let count = usize::from(upper.count.get());
        if count > ROOT_ENTRIES || (count == 0 && upper.depth.get() > 0) {
            return Err(corrupt(ino, "the extent root has an impossible entry count"));
        }
        let mut nodes = 0;
        let mut root = Node::new(0, upper.depth.get());
        root.entries = upper.root[..count].to_vec();
        root.check_and_descend(base, ino, FILE_PAGES_MAX, &mut nodes)?;
        root.dirty = false;
        Ok(Self { root, nodes })
    }

    /// The block behind that of the page before `file_page`: where that page is best put.
    pub fn goal(&self, file_page: u64) -> Option<u64> {
        match self.map(file_page.checked_sub(1)?) {
            Mapped::At { lba, .. } | Mapped::Unwritten { lba, .. } => Some(lba + 1),
            Mapped::Hole { .. } => None,
        }
    }

    /// Pages that extent nodes take.
    pub const fn node_pages(&self) -> u32 {
        self.nodes
    }

    /// Blocks that one [`insert`](Self::insert) may allocate for nodes at the most.
    pub const fn insert_needs(&self) -> u64 {
        self.root.depth as u64 + 1
    }

    /// Maps `pages` unmapped pages from `file_page` to `lba`; `alloc` supplies blocks for new nodes.
    pub fn insert(&mut self, file_page: u64, lba: u32, pages: u32, alloc: &mut dyn FnMut() -> u32) {
        self.insert_extent(Extent::new(file_page, lba, pages, false), alloc);
    }

    /// Notes that the unwritten pages from `file_page` up to `end` now hold data, and returns the node pages
    /// that this freed. `alloc` may be asked for twice [`insert_needs`](Self::insert_needs) blocks.
    #[must_use]
    pub fn mark_written(&mut self, file_page: u64, end: u64, alloc: &mut dyn FnMut() -> u32) -> Removed {
        let mut freed = Removed::default();
        let mut at = file_page;
        while at < end {
            let Mapped::Unwritten { lba, pages } = self.map(at) else { break };
            let pages = pages.min(end - at);
            freed.nodes.append(&mut self.remove(at, at + pages, alloc).nodes);
            self.insert(at, lba as u32, pages as u32, alloc);
            at += pages;
        }
        freed
    }

    /// Maps unmapped pages; `alloc` supplies blocks for new nodes.
    pub fn insert_extent(&mut self, new: Extent, alloc: &mut dyn FnMut() -> u32) {
        if self.root.depth == 0 && self.root.entries.len() == ROOT_ENTRIES {
            if self.root.merge(&new) {
                self.root.dirty = true;
                return;
            }
            self.push_down(alloc());
        }
        // An inner root may get one entry more than fits; it is then pushed down as well.
        let split = self.root.insert(new, ROOT_ENTRIES + 1, alloc, &mut self.nodes);
        debug_assert!(split.is_none(), "the root grows by one entry at a time");
        if self.root.entries.len() > ROOT_ENTRIES {
            self.push_down(alloc());
        }
    }

    /// Moves the root's entries into a new node below it.
    fn push_down(&mut self, lba: u32) {
        let depth = self.root.depth;
        let mut child = Node::new(lba, depth);
        child.entries = std::mem::take(&mut self.root.entries);
        child.children = std::mem::take(&mut self.root.children);
        self.nodes += 1;
        self.root.depth = depth + 1;
        self.root.entries.push(pointer(child.key(), lba));
        self.root.children.push(child);
        self.root.dirty = true;
    }

    /// Unmaps the pages from `from` up to `to`. `alloc` may be asked for [`insert_needs`](Self::insert_needs)
    /// blocks, and only when one extent reaches beyond both ends.
    pub fn remove(&mut self, from: u64, to: u64, alloc: &mut dyn FnMut() -> u32) -> Removed {
        let mut gone = Removed::default();
        let right = self.root.remove(from, to, &mut gone, &mut self.nodes);
        if self.root.entries.is_empty() {
            self.root.depth = 0;
        }
        if let Some(right) = right {
            self.insert_extent(right, alloc);
        }
        gone
    }

    /// Number of pages mapped at or beyond `from`.
    pub fn pages_from(&self, from: u64) -> u64 {
        self.root.pages_from(from)
    }

    /// The last extent.
    pub fn last(&self) -> Option<Extent> {
        self.root.last()
    }

    /// Whether the inode's upper half or any node differs from the device.
    pub const fn dirty(&self) -> bool {
        self.root.dirty
    }

    /// Adds the changed lines of the nodes to `tx`; the caller writes the root with [`fill`](Self::fill).
    pub fn flush<D: BlockPort + WriteLog>(&mut self, ino: u32, tx: &mut Tx<'_, D>) {
        self.root.flush(ino, tx);
    }

    /// Writes the root into an inode's upper half.
    pub fn fill(&self, upper: &mut InodeUpper) {
        upper.depth = self.root.depth.into();
        upper.count = (self.root.entries.len() as u16).into();
        upper.root = [Extent::default(); ROOT_ENTRIES];
        upper.root[..self.root.entries.len()].copy_from_slice(&self.root.entries);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;
    use crate::format::NODE_ENTRIES;
    use crate::space::group_bits::Run;

    /// The tree as a map from page to block, checking the invariants on the way.
    fn flatten(node: &Node, end: u64, into: &mut BTreeMap<u64, u64>) {
        assert!(node.entries.len() <= NODE_ENTRIES);
        assert_eq!(node.children.len(), if node.depth > 0 { node.entries.len() } else { 0 });
        for (i, entry) in node.entries.iter().enumerate() {
            let next = node.entries.get(i + 1).map_or(end, |next| next.file_page.get());
            let first = entry.file_page.get();
            assert!(first < next, "keys ascend");
            if node.depth > 0 {
                assert_eq!(node.children[i].key(), first, "a child starts with its key");
                assert_eq!(node.children[i].lba, entry.lba.get());
                flatten(&node.children[i], next, into);
            } else {
                for page in 0..u64::from(entry.len()) {
                    assert!(first + page < next, "extents do not overlap");
                    into.insert(first + page, u64::from(entry.lba.get()) + page);
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn maps_like_a_btree_map(ops in proptest::collection::vec((0..3000_u64, 1..40_u64, any::<bool>()), 1..900)) {
            let mut tree = ExtentTree::default();
            let mut map = BTreeMap::new();
            let mut next_lba = 1_000_000_u32;
            let mut node_lba = 0_u32;
            for (page, len, insert) in ops {
                let mut alloc = || { node_lba += 1; node_lba };
                if insert {
                    // Every other page, so that extents rarely merge and the tree grows deep.
                    for page in (page..page + len).step_by(2).filter(|page| !map.contains_key(page)).collect::<Vec<_>>() {
                        tree.insert(page, next_lba, 1, &mut alloc);
                        map.insert(page, u64::from(next_lba));
                        next_lba += if page % 3 == 0 { 1 } else { 2 };
                    }
                } else {
                    let gone = tree.remove(page, page + len, &mut alloc);
                    let freed: u64 = gone.blocks.iter().map(|run| run.len).sum();
                    let expected = map.range(page..page + len).count() as u64;
                    map.retain(|key, _| !(page..page + len).contains(key));
                    prop_assert_eq!(freed, expected);
                }
            }
            let mut flat = BTreeMap::new();
            flatten(&tree.root, u64::MAX, &mut flat);
            prop_assert_eq!(&flat, &map);
            for page in 0..3100 {
                let found = match tree.map(page) { Mapped::At { lba, .. } => Some(lba), _ => None };
                prop_assert_eq!(found, map.get(&page).copied(), "page {}", page);
            }
        }
    }

    #[test]
    fn appending_makes_one_extent() {
        let mut tree = ExtentTree::default();
        for page in 0..1000 {
            tree.insert(page, 5000 + page as u32, 1, &mut || panic!("no node is needed"));
        }
        assert_eq!(tree.map(0), Mapped::At { lba: 5000, pages: 1000 });
        assert_eq!(tree.map(1000), Mapped::Hole { pages: u64::MAX - 1000 });
    }

    #[test]
    fn a_hole_in_the_middle_keeps_both_ends() {
        let mut tree = ExtentTree::default();
        tree.insert(0, 100, 10, &mut || 0);
        let gone = tree.remove(3, 5, &mut || 0);
        assert_eq!(gone.blocks, [Run { start: 103, len: 2 }]);
        assert_eq!(tree.map(2), Mapped::At { lba: 102, pages: 1 });
        assert_eq!(tree.map(3), Mapped::Hole { pages: 2 });
        assert_eq!(tree.map(5), Mapped::At { lba: 105, pages: 5 });
    }
}
