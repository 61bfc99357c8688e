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

use amphi_device::{BlockPort, Lpa, Structure, WriteLog};
use amphi_page_cache::{Mapped, Mapping};
use amphi_vfs::{Error, Result};
use amphi_volume::io_error;

use crate::base::Base;
use crate::commit::tx::Tx;
use crate::format::{Extent, InodeUpper, LINE, NODE_ENTRIES, NodeHeader, PAGE, ROOT_ENTRIES, UNWRITTEN};
use crate::planted::{self, Bug};
use crate::space::bitmap::Run;

struct Node {
    lba: u32,
    depth: u16,
    entries: Vec<Extent>,
    /// As many as `entries` where `depth > 0`, else none.
    children: Vec<Node>,
    dirty: bool,
    /// What the device holds, unless the node is new or the root.
    disk: Option<Box<[u8; PAGE]>>,
}

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

/// The entry of an inner node that points to the child on page `lba`.
fn pointer(key: u64, lba: u32) -> Extent {
    Extent::new(key, lba, 0, false)
}

impl Node {
    const fn new(lba: u32, depth: u16) -> Self {
        Self { lba, depth, entries: Vec::new(), children: Vec::new(), dirty: true, disk: None }
    }

    fn key(&self) -> u64 {
        self.entries.first().map_or(0, |entry| entry.file_page.get())
    }

    /// Index of the entry whose range of keys holds `file_page`: the last one not beyond it, or the first.
    fn index(&self, file_page: u64) -> usize {
        self.entries.partition_point(|entry| entry.file_page.get() <= file_page).saturating_sub(1)
    }

    fn load<D: BlockPort + WriteLog>(
        base: &Base<D>,
        ino: u32,
        pointer: &Extent,
        depth: u16,
        end: u64,
        nodes: &mut u32,
    ) -> Result<Self> {
        let lba = pointer.lba.get();
        if !base.layout.holds_data(lba, 1) || !pointer.is_empty() {
            return Err(corrupt(ino, "a child pointer leads outside the data area"));
        }
        let mut page = Box::new([0; PAGE]);
        let read = base.read_metadata(Lpa(u64::from(lba)), &mut page[..], Structure::Pointer);
        read.map_err(io_error)?;
        let entries =
            NodeHeader::decode(&page, ino, depth).map_err(|error| corrupt(ino, &error.to_string()))?.to_vec();
        if entries[0].file_page != pointer.file_page {
            return Err(corrupt(ino, "an extent node does not start with its parent's key"));
        }
        *nodes += 1;
        let mut node = Self { lba, depth, entries, children: Vec::new(), dirty: false, disk: Some(page) };
        node.check_and_descend(base, ino, end, nodes)?;
        Ok(node)
    }

    /// Checks the entries of a node that holds keys below `end`, and loads the children.
    fn check_and_descend<D: BlockPort + WriteLog>(
        &mut self,
        base: &Base<D>,
        ino: u32,
        end: u64,
        nodes: &mut u32,
    ) -> Result<()> {
        for (i, entry) in self.entries.iter().enumerate() {
            let next = self.entries.get(i + 1).map_or(end, |next| next.file_page.get());
            let first = entry.file_page.get();
            if first >= next {
                return Err(corrupt(ino, "extents are out of order"));
            }
            if self.depth > 0 {
                self.children.push(Self::load(base, ino, entry, self.depth - 1, next, nodes)?);
                continue;
            }
            let pages = entry.len();
            let inside = base.layout.holds_data(entry.lba.get(), pages);
            if pages == 0 || first + u64::from(pages) > next || !inside {
                return Err(corrupt(ino, "an extent overlaps the next or leaves the data area"));
            }
        }
        Ok(())
    }

    fn map(&self, file_page: u64, end: u64) -> Mapped {
        if self.entries.is_empty() {
            return Mapped::Hole { pages: end - file_page };
        }
        let i = self.index(file_page);
        let next = self.entries.get(i + 1).map_or(end, |next| next.file_page.get());
        let entry = &self.entries[i];
        let first = entry.file_page.get();
        if file_page < first {
            return Mapped::Hole { pages: first - file_page };
        }
        if self.depth > 0 {
            return self.children[i].map(file_page, next);
        }
        let into = file_page - first;
        let lba = u64::from(entry.lba.get()) + into;
        match u64::from(entry.len()).checked_sub(into) {
            Some(pages) if pages > 0 && entry.unwritten() => Mapped::Unwritten { lba, pages },
            Some(pages) if pages > 0 => Mapped::At { lba, pages },
            _ => Mapped::Hole { pages: next - file_page },
        }
    }

    /// Adds an extent; returns the new right sibling if the node had to split.
    fn insert(
        &mut self,
        new: Extent,
        capacity: usize,
        alloc: &mut dyn FnMut() -> u32,
        nodes: &mut u32,
    ) -> Option<Self> {
        self.dirty = true;
        let at = if self.depth > 0 {
            let i = self.index(new.file_page.get());
            let sibling = self.children[i].insert(new, NODE_ENTRIES, alloc, nodes);
            self.entries[i].file_page = self.children[i].key().into();
            let sibling = sibling?;
            self.entries.insert(i + 1, pointer(sibling.key(), sibling.lba));
            self.children.insert(i + 1, sibling);
            i + 1
        } else {
            if self.merge(&new) {
                return None;
            }
            let at = self.entries.partition_point(|entry| entry.file_page.get() < new.file_page.get());
            self.entries.insert(at, new);
            at
        };
        let len = self.entries.len();
        // A node that grew at its end keeps all but the last entry, so that files written in order fill their
        // nodes.
        let keep = if at + 1 == len { len - 1 } else { len / 2 };
        (len > capacity).then(|| self.split(keep, alloc(), nodes))
    }

    /// Lengthens a neighbour that the extent continues, in the file and on the device.
    fn merge(&mut self, new: &Extent) -> bool {
        let at = self.entries.partition_point(|entry| entry.file_page.get() < new.file_page.get());
        let continues = |left: &Extent, right: &Extent| {
            left.end() == right.file_page.get()
                && left.lba.get() + left.len() == right.lba.get()
                && left.unwritten() == right.unwritten()
                && left.len() + right.len() < UNWRITTEN
        };
        if at > 0 && continues(&self.entries[at - 1], new) {
            let mut left = self.entries[at - 1];
            left.set_len(left.len() + new.len());
            if let Some(right) = self.entries.get(at).copied()
                && continues(&left, &right)
            {
                left.set_len(left.len() + right.len());
                self.entries.remove(at);
            }
            self.entries[at - 1] = left;
            return true;
        }
        if let Some(right) = self.entries.get_mut(at)
            && continues(new, right)
        {
            *right =
                Extent::new(new.file_page.get(), new.lba.get(), new.len() + right.len(), new.unwritten());
            return true;
        }
        false
    }

    /// Moves the entries from `at` on into a new node.
    fn split(&mut self, at: usize, lba: u32, nodes: &mut u32) -> Self {
        let mut right = Self::new(lba, self.depth);
        right.entries = self.entries.split_off(at);
        if self.depth > 0 {
            right.children = self.children.split_off(at);
        }
        *nodes += 1;
        right
    }

    /// Removes what lies in `from .. to`, except that an extent with parts on both sides keeps its left part
    /// here and hands its right part back to be inserted.
    fn remove(&mut self, from: u64, to: u64, gone: &mut Removed, nodes: &mut u32) -> Option<Extent> {
        let mut right_part = None;
        let mut i = self.index(from);
        while i < self.entries.len() && self.entries[i].file_page.get() < to {
            if self.depth > 0 {
                let child = &mut self.children[i];
                right_part = right_part.or(child.remove(from, to, gone, nodes));
                self.dirty |= child.dirty;
                if child.entries.is_empty() {
                    gone.nodes.push(child.lba);
                    *nodes -= 1;
                    self.children.remove(i);
                    self.entries.remove(i);
                    self.dirty = true;
                } else {
                    self.entries[i].file_page = child.key().into();
                    i += 1;
                }
                continue;
            }
            let entry = self.entries[i];
            let (first, lba) = (entry.file_page.get(), entry.lba.get());
            let (end, unwritten) = (entry.end(), entry.unwritten());
            let (cut_from, cut_to) = (first.max(from), end.min(to));
            if cut_from >= cut_to {
                i += 1;
                continue;
            }
            self.dirty = true;
            gone.blocks.push(Run { start: u64::from(lba) + (cut_from - first), len: cut_to - cut_from });
            let left =
                (cut_from > first).then(|| Extent::new(first, lba, (cut_from - first) as u32, unwritten));
            let right = (cut_to < end).then(|| {
                Extent::new(cut_to, lba + (cut_to - first) as u32, (end - cut_to) as u32, unwritten)
            });
            match (left, right) {
                (Some(left), right) => {
                    self.entries[i] = left;
                    right_part = right_part.or(right);
                    i += 1;
                }
                (None, Some(right)) => {
                    self.entries[i] = right;
                    i += 1;
                }
                (None, None) => {
                    self.entries.remove(i);
                }
            }
        }
        right_part
    }

    fn pages_from(&self, from: u64) -> u64 {
        let start = self.index(from);
        if self.depth > 0 {
            return self.children[start..].iter().map(|child| child.pages_from(from)).sum();
        }
        let pages = |entry: &Extent| entry.end().saturating_sub(from.max(entry.file_page.get()));
        self.entries[start.min(self.entries.len())..].iter().map(pages).sum()
    }

    fn last(&self) -> Option<Extent> {
        match self.children.last() {
            Some(child) => child.last(),
            None => self.entries.last().copied(),
        }
    }

    fn flush<D: BlockPort + WriteLog>(&mut self, ino: u32, tx: &mut Tx<'_, D>) {
        for child in self.children.iter_mut().filter(|child| child.dirty) {
            child.flush(ino, tx);
            let mut page = Box::new([0; PAGE]);
            let used = NodeHeader::encode(&mut page, ino, child.depth, &child.entries);
            let differs = |l: usize| match &child.disk {
                Some(disk) => {
                    disk[l..l + LINE] != page[l..l + LINE] || planted::has(Bug::ExtentNodeRewritten)
                }
                None => true,
            };
            let mut at = 0;
            while at < used {
                let start = at;
                while at < used && differs(at) {
                    at += LINE;
                }
                if at > start {
                    tx.write(
                        Lpa(u64::from(child.lba)).byte(start),
                        &page[start..at.min(PAGE)],
                        Structure::Pointer,
                    );
                }
                at += LINE;
            }
            let compared = used.next_multiple_of(LINE);
            if let Some(disk) = &child.disk {
                page[compared..].copy_from_slice(&disk[compared..]);
            }
            child.disk = Some(page);
        }
        self.dirty = false;
    }
}

/// What [`ExtentTree::remove`] took out.
#[derive(Default)]
pub struct Removed {
    /// Data blocks.
    pub blocks: Vec<Run>,
    /// Extent node pages.
    pub nodes: Vec<u32>,
}

impl Removed {
    /// Frees all of it when `tx` commits, and returns the number of data pages.
    pub fn free<D: BlockPort + WriteLog>(self, tx: &mut Tx<'_, D>) -> u64 {
        for node in self.nodes {
            tx.free_blocks(Run { start: u64::from(node), len: 1 });
        }
        self.blocks.into_iter().fold(0, |pages, run| {
            tx.free_blocks(run);
            pages + run.len
        })
    }
}

fn corrupt(ino: u32, what: &str) -> Error {
    Error::corrupt("inode", u64::from(ino), what.to_owned())
}

/// First file page beyond what any file may have; extents end there.
pub const FILE_PAGES_MAX: u64 = 1 << 40;

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
