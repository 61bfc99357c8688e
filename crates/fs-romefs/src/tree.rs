//! The index of a file's data logs: a B+tree whose leaves each serve one data block (RO-5).
//!
//! A leaf has room for 16 logs and does not split: a block that has more is written back. What splits are the
//! nodes above. Leaves that have become empty stay until a checkpoint takes them all away and builds the
//! nodes anew, so that write-back does not reshape the tree each time.

use std::ops::Range;

use smallvec::SmallVec;

use crate::format::{LEAF_ENTRIES, PAGE};

/// Most children of a node.
const FANOUT: usize = 32;

/// A data log: bytes of one page of the file, in a page of the memory zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Log {
    /// Log page.
    pub page: u32,
    /// First byte in the data block.
    pub offset: u32,
    /// Bytes.
    pub size: u32,
}

impl Log {
    /// The bytes of the data block.
    pub const fn range(self) -> Range<u64> {
        self.offset as u64..self.offset as u64 + self.size as u64
    }

    /// Whether it has any of these bytes of the data block.
    pub const fn meets(self, bytes: &Range<u64>) -> bool {
        self.range().start < bytes.end && bytes.start < self.range().end
    }

    /// Which page of the data block it lies in.
    pub const fn page_of_block(self) -> u32 {
        self.offset / PAGE as u32
    }

    /// Where its bytes are in the log page.
    pub const fn in_page(self) -> u64 {
        self.offset as u64 % PAGE as u64
    }
}

/// The logs of one data block, in no order; no two have a byte in common.
pub type Logs = SmallVec<[Log; LEAF_ENTRIES]>;

/// A leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Its number in the leaf table.
    pub number: u32,
    /// Logs.
    pub logs: Logs,
}

enum Node {
    Inner(Box<Inner>),
    Leaf(Box<Leaf>),
}

/// Children and the first block of each. The first child's is not looked at: it serves whatever is lower.
#[derive(Default)]
struct Inner {
    firsts: SmallVec<[u64; FANOUT]>,
    children: Vec<Node>,
}

/// The index.
#[derive(Default)]
pub struct Tree {
    root: Inner,
    len: usize,
}

impl Inner {
    fn child_of(&self, block: u64) -> Option<usize> {
        let after = self.firsts.partition_point(|first| *first <= block);
        if self.children.is_empty() { None } else { Some(after.saturating_sub(1)) }
    }

    fn get(&self, block: u64) -> Option<&Leaf> {
        let at = self.child_of(block)?;
        match &self.children[at] {
            Node::Inner(inner) => inner.get(block),
            Node::Leaf(leaf) => (self.firsts[at] == block).then_some(leaf),
        }
    }

    fn get_mut(&mut self, block: u64) -> Option<&mut Leaf> {
        let at = self.child_of(block)?;
        match &mut self.children[at] {
            Node::Inner(inner) => inner.get_mut(block),
            Node::Leaf(leaf) => (self.firsts[at] == block).then_some(leaf),
        }
    }

    /// Inserts a leaf that is not there. Returns the node that has split off behind this one.
    fn insert(&mut self, block: u64, leaf: Box<Leaf>) -> Option<(u64, Self)> {
        match self.child_of(block) {
            Some(at) if matches!(self.children[at], Node::Inner(_)) => {
                let Node::Inner(inner) = &mut self.children[at] else { return None };
                let (first, split) = inner.insert(block, leaf)?;
                self.firsts.insert(at + 1, first);
                self.children.insert(at + 1, Node::Inner(Box::new(split)));
            }
            _ => {
                let at = self.firsts.partition_point(|first| *first < block);
                self.firsts.insert(at, block);
                self.children.insert(at, Node::Leaf(leaf));
            }
        }
        (self.children.len() > FANOUT).then(|| {
            let middle = self.children.len() / 2;
            let split = Self {
                firsts: self.firsts.drain(middle..).collect(),
                children: self.children.drain(middle..).collect(),
            };
            (split.firsts[0], split)
        })
    }

    fn visit<'a>(&'a self, range: &Range<u64>, body: &mut impl FnMut(u64, &'a Leaf)) {
        let start = self.child_of(range.start).unwrap_or(0);
        for (at, child) in self.children.iter().enumerate().skip(start) {
            if self.firsts[at] >= range.end && at > start {
                return;
            }
            match child {
                Node::Inner(inner) => inner.visit(range, body),
                Node::Leaf(leaf) if range.contains(&self.firsts[at]) => body(self.firsts[at], leaf),
                Node::Leaf(_) => {}
            }
        }
    }

    fn into_leaves(self, body: &mut impl FnMut(u64, Box<Leaf>)) {
        for (first, child) in self.firsts.into_iter().zip(self.children) {
            match child {
                Node::Inner(inner) => inner.into_leaves(body),
                Node::Leaf(leaf) => body(first, leaf),
            }
        }
    }
}

impl Tree {
    /// Number of leaves.
    #[cfg(test)]
    const fn len(&self) -> usize {
        self.len
    }

    /// The leaf of a data block.
    pub fn get(&self, block: u64) -> Option<&Leaf> {
        self.root.get(block)
    }

    /// The leaf of a data block, to change.
    pub fn get_mut(&mut self, block: u64) -> Option<&mut Leaf> {
        self.root.get_mut(block)
    }

    /// Sets the leaf of a data block.
    pub fn set(&mut self, block: u64, leaf: &Leaf) {
        if let Some(there) = self.root.get_mut(block) {
            there.number = leaf.number;
            there.logs.clear();
            there.logs.extend_from_slice(&leaf.logs);
            return;
        }
        self.len += 1;
        let leaf = Leaf { number: leaf.number, logs: Logs::from_slice(&leaf.logs) };
        if let Some((first, split)) = self.root.insert(block, Box::new(leaf)) {
            let old = std::mem::take(&mut self.root);
            let lowest = old.firsts[0];
            self.root.firsts.extend([lowest, first]);
            self.root.children.extend([Node::Inner(Box::new(old)), Node::Inner(Box::new(split))]);
        }
    }

    /// Calls `body` with the leaves of a range of data blocks, in order.
    pub fn visit<'a>(&'a self, range: Range<u64>, mut body: impl FnMut(u64, &'a Leaf)) {
        self.root.visit(&range, &mut body);
    }

    /// Keeps the leaves that `keep` wants, and builds the nodes anew.
    pub fn retain(&mut self, mut keep: impl FnMut(u64, &Leaf) -> bool) {
        let mut leaves = Vec::with_capacity(self.len);
        std::mem::take(&mut self.root).into_leaves(&mut |block, leaf| {
            if keep(block, &leaf) {
                leaves.push((block, Node::Leaf(leaf)));
            }
        });
        self.len = leaves.len();
        while leaves.len() > FANOUT {
            let mut above = Vec::with_capacity(leaves.len().div_ceil(FANOUT));
            let mut rest = leaves.into_iter().peekable();
            while let Some((first, _)) = rest.peek() {
                let first = *first;
                let (firsts, children) = rest.by_ref().take(FANOUT).unzip();
                above.push((first, Node::Inner(Box::new(Inner { firsts, children }))));
            }
            leaves = above;
        }
        let (firsts, children) = leaves.into_iter().unzip();
        self.root = Inner { firsts, children };
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn leaf(number: u32) -> Leaf {
        Leaf { number, logs: Logs::new() }
    }

    proptest! {
        #[test]
        fn behaves_like_a_btree_map(ops in proptest::collection::vec((0..4_u8, 0..3000_u64, any::<u32>()), 0..1500)) {
            let (mut tree, mut map) = (Tree::default(), BTreeMap::new());
            for (kind, block, number) in ops {
                match kind {
                    0 | 1 => {
                        tree.set(block, &leaf(number));
                        map.insert(block, number);
                    }
                    2 if number % 16 == 0 => {
                        tree.retain(|block, leaf| block % 3 != 0 || leaf.number % 2 == 0);
                        map.retain(|block, number| block % 3 != 0 || *number % 2 == 0);
                    }
                    2 => {
                        let range = block..block + u64::from(number % 100);
                        let mut seen = Vec::new();
                        tree.visit(range.clone(), |block, leaf| seen.push((block, leaf.number)));
                        let wanted: Vec<_> = map.range(range).map(|(block, number)| (*block, *number)).collect();
                        prop_assert_eq!(seen, wanted);
                    }
                    _ => {
                        prop_assert_eq!(tree.get(block).map(|leaf| leaf.number), map.get(&block).copied());
                        prop_assert_eq!(tree.get_mut(block).map(|leaf| leaf.number), map.get(&block).copied());
                    }
                }
                prop_assert_eq!(tree.len(), map.len());
            }
        }
    }
}
