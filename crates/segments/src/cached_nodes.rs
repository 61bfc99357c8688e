//! A domain's nodes in memory: which of them have changed, file by file, and which can leave.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::hash::Hash;
use std::ops::Index;

use amphi_rt::hash::HashMap;
use amphi_vfs::Ino;

use crate::format::{ADDRESSES, Address, NodeBlock};

/// A node in memory.
#[derive(Clone)]
pub struct Node {
    /// The file.
    pub ino: Ino,
    /// Which part of it.
    pub index: u32,
    /// Where the pages are.
    pub addresses: Box<[Address; ADDRESSES]>,
    /// When it was written last.
    pub sequence: u64,
    /// Changed since.
    dirty: bool,
    /// It has a new block, which may not hold it yet.
    is_leaving: bool,
    used: Referenced,
}

impl Node {
    /// One that names nothing. It is dirty.
    pub fn new(ino: Ino, index: u32) -> Self {
        let addresses = Box::new([Address::HOLE; ADDRESSES]);
        Self {
            ino,
            index,
            addresses,
            sequence: 0,
            dirty: true,
            is_leaving: false,
            used: Referenced::default(),
        }
    }

    /// Whether it has changed since it was written last.
    pub const fn is_dirty(&self) -> bool {
        self.dirty
    }

    /// As a block has it. It is not dirty.
    #[must_use]
    pub fn of(block: &NodeBlock) -> Self {
        Self {
            ino: Ino(block.head.ino.get()),
            index: block.head.index.get(),
            addresses: Box::new(block.addresses),
            sequence: block.head.sequence.get(),
            dirty: false,
            is_leaving: false,
            used: Referenced::default(),
        }
    }
}

/// Nodes by number.
#[derive(Default)]
pub struct Nodes {
    known: HashMap<u32, Node>,
    dirty: BTreeSet<(Ino, u32)>,
}

impl Nodes {
    /// A node, if it is in memory.
    pub fn get(&self, nid: &u32) -> Option<&Node> {
        let node = self.known.get(nid)?;
        node.used.note();
        Some(node)
    }

    /// A node, to change it; see [`touch`](Self::touch).
    pub fn get_mut(&mut self, nid: &u32) -> Option<&mut Node> {
        let node = self.known.get_mut(nid)?;
        node.used.note();
        Some(node)
    }

    /// Whether a node is in memory.
    pub fn contains_key(&self, nid: &u32) -> bool {
        self.known.contains_key(nid)
    }

    /// Numbers of all that are in memory, in no order.
    pub fn keys(&self) -> impl Iterator<Item = u32> {
        self.known.keys().copied()
    }

    /// Puts a node into memory.
    pub fn insert(&mut self, nid: u32, node: Node) {
        self.remove(&nid);
        if node.dirty {
            self.dirty.insert((node.ino, nid));
        }
        self.known.insert(nid, node);
    }

    /// A node leaves memory.
    pub fn remove(&mut self, nid: &u32) -> Option<Node> {
        let node = self.known.remove(nid)?;
        self.dirty.remove(&(node.ino, *nid));
        Some(node)
    }

    /// A node will have to be written. Whether that is new.
    pub fn touch(&mut self, nid: &u32) -> bool {
        self.known.get_mut(nid).is_some_and(|node| {
            node.dirty = true;
            self.dirty.insert((node.ino, *nid))
        })
    }

    /// The device has a node as it is.
    pub fn settle(&mut self, nid: &u32) {
        if let Some(node) = self.known.get_mut(nid) {
            node.dirty = false;
            self.dirty.remove(&(node.ino, *nid));
        }
    }

    /// A node is being written as it is. Until it has [`arrived`](Self::arrived) it stays in memory: for
    /// ever, if writing it fails.
    pub fn leaves(&mut self, nid: &u32) {
        self.settle(nid);
        if let Some(node) = self.known.get_mut(nid) {
            node.is_leaving = true;
        }
    }

    /// A node has been written.
    pub fn arrived(&mut self, nid: &u32) {
        if let Some(node) = self.known.get_mut(nid) {
            node.is_leaving = false;
        }
    }

    /// Numbers of nodes that have changed, by file.
    pub fn dirty(&self) -> impl ExactSizeIterator<Item = u32> {
        self.dirty.iter().map(|(_, nid)| *nid)
    }

    /// The same of one file, ascending.
    pub fn dirty_of(&self, ino: Ino) -> impl Iterator<Item = u32> {
        self.dirty.range((ino, 0)..=(ino, u32::MAX)).map(|(_, nid)| *nid)
    }

    /// Has clean ones leave if there are more than `most`.
    pub(crate) fn make_room(&mut self, most: usize) {
        make_room(&mut self.known, most, |node| (node.dirty || node.is_leaving, &node.used));
    }
}

impl Index<&u32> for Nodes {
    type Output = Node;

    fn index(&self, nid: &u32) -> &Node {
        self.get(nid).unwrap_or_else(|| unreachable!("the caller has had it brought into memory"))
    }
}

/// Whether something was used since room was looked for the last time.
#[derive(Clone, Debug, Default)]
pub struct Referenced(Cell<bool>);

impl Referenced {
    /// It was.
    pub fn note(&self) {
        self.0.set(true);
    }
}

/// Has an eighth leave of what is kept in memory, once that is more than `most`: what was not used since the
/// last time first. `what` says whether something has to stay, and whether it was used.
pub fn make_room<K: Eq + Hash, V>(
    kept: &mut HashMap<K, V>,
    most: usize,
    what: impl Fn(&V) -> (bool, &Referenced),
) {
    if kept.len() <= most {
        return;
    }
    let mut leaving = kept.len() - (most - most / 8);
    for also_used in [false, true] {
        kept.retain(|_, value| {
            let (stays, used) = what(value);
            let leaves = leaving > 0 && !stays && (!used.0.replace(false) || also_used);
            leaving -= usize::from(leaves);
            !leaves
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dirty_stays_and_what_was_used_goes_last() {
        let mut nodes = Nodes::default();
        for nid in 0..100 {
            nodes.insert(nid, Node::new(Ino(u64::from(nid) / 10), nid));
            if nid >= 10 {
                nodes.settle(&nid);
            }
        }
        assert!(nodes.dirty().eq(0..10) && nodes.dirty_of(Ino(0)).eq(0..10));
        nodes.make_room(100);
        assert_eq!(nodes.keys().count(), 100, "there is room");
        (10..30).for_each(|nid| drop(nodes[&nid].clone()));
        nodes.make_room(40);
        assert_eq!(nodes.keys().count(), 35);
        assert!((0..30).all(|nid| nodes.contains_key(&nid)), "dirty, or used");
        nodes.make_room(8);
        assert!(nodes.keys().all(|nid| nid < 10) && nodes.keys().count() == 10, "only dirty ones");
    }

    #[test]
    fn what_is_being_written_stays_until_it_is_written() {
        let mut nodes = Nodes::default();
        (0..10).for_each(|nid| nodes.insert(nid, Node::new(Ino(1), nid)));
        (0..10).for_each(|nid| nodes.leaves(&nid));
        assert_eq!(nodes.dirty().len(), 0);
        (0..5).for_each(|nid| nodes.arrived(&nid));
        nodes.make_room(1);
        let mut left: Vec<_> = nodes.keys().collect();
        left.sort_unstable();
        assert_eq!(left, [5, 6, 7, 8, 9]);
    }

    #[test]
    fn what_is_dirty_is_known_file_by_file() {
        let mut nodes = Nodes::default();
        nodes.insert(7, Node::new(Ino(1), 0));
        nodes.insert(5, Node::new(Ino(2), 0));
        nodes.insert(9, Node::new(Ino(1), 1));
        assert!(!nodes.touch(&7) && !nodes.touch(&8), "it was, or is not in memory");
        assert!(nodes.dirty_of(Ino(1)).eq([7, 9]) && nodes.dirty().len() == 3);
        nodes.settle(&7);
        assert!(nodes.touch(&7));
        assert!(nodes.remove(&9).is_some_and(|node| node.is_dirty()));
        nodes.settle(&7);
        assert!(nodes.remove(&7).is_some_and(|node| !node.is_dirty()));
        assert!(nodes.dirty().eq([5]));
    }
}
