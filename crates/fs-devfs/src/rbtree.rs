//! A red-black tree from block numbers to runs, in an arena (§4.1: filemaps are kept in one). Indices stand
//! for references, so a tree is one allocation that grows, and the device's memory counts it.
//!
//! Invariants: a red node's children are black; every way from the root down passes as many black nodes. Node
//! 0 is the black leaf that all others share.

/// A tree.
#[derive(Debug)]
pub struct RbTree<V> {
    nodes: Vec<Node<V>>,
    root: u32,
    /// Nodes that were removed, for the next ones.
    spare: Vec<u32>,
}

#[derive(Clone, Debug)]
struct Node<V> {
    key: u64,
    value: V,
    parent: u32,
    /// Left, right.
    child: [u32; 2],
    red: bool,
}

const NIL: u32 = 0;
const LEFT: usize = 0;
const RIGHT: usize = 1;

impl<V: Copy + Default> Default for RbTree<V> {
    fn default() -> Self {
        Self { nodes: vec![leaf()], root: NIL, spare: Vec::new() }
    }
}

fn leaf<V: Default>() -> Node<V> {
    Node { key: 0, value: V::default(), parent: NIL, child: [NIL; 2], red: false }
}

impl<V: Copy + Default> RbTree<V> {
    /// Bytes that one entry takes.
    pub const NODE_BYTES: u64 = size_of::<Node<V>>() as u64;

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.nodes.len() - 1 - self.spare.len()
    }

    fn at(&self, node: u32) -> &Node<V> {
        &self.nodes[node as usize]
    }

    fn at_mut(&mut self, node: u32) -> &mut Node<V> {
        &mut self.nodes[node as usize]
    }

    /// The entry with the greatest key up to `key`.
    pub fn floor(&self, key: u64) -> Option<(u64, V)> {
        let (mut node, mut best) = (self.root, NIL);
        while node != NIL {
            let this = self.at(node);
            if this.key <= key {
                best = node;
                node = this.child[RIGHT];
            } else {
                node = this.child[LEFT];
            }
        }
        (best != NIL).then(|| (self.at(best).key, self.at(best).value))
    }

    /// The entry with the least key from `key` on.
    pub fn ceiling(&self, key: u64) -> Option<(u64, V)> {
        let (mut node, mut best) = (self.root, NIL);
        while node != NIL {
            let this = self.at(node);
            if this.key >= key {
                best = node;
                node = this.child[LEFT];
            } else {
                node = this.child[RIGHT];
            }
        }
        (best != NIL).then(|| (self.at(best).key, self.at(best).value))
    }

    /// Sets the value of a key.
    pub fn insert(&mut self, key: u64, value: V) {
        let (mut parent, mut side, mut node) = (NIL, LEFT, self.root);
        while node != NIL {
            let this = self.at_mut(node);
            if this.key == key {
                this.value = value;
                return;
            }
            side = usize::from(this.key < key);
            (parent, node) = (node, this.child[side]);
        }
        let new = Node { key, value, parent, child: [NIL; 2], red: true };
        let number = if let Some(spare) = self.spare.pop() {
            *self.at_mut(spare) = new;
            spare
        } else {
            self.nodes.push(new);
            self.nodes.len() as u32 - 1
        };
        if parent == NIL {
            self.root = number;
        } else {
            self.at_mut(parent).child[side] = number;
        }
        self.mend_insertion(number);
    }

    fn mend_insertion(&mut self, mut node: u32) {
        while self.at(self.at(node).parent).red {
            let mut parent = self.at(node).parent;
            let grandparent = self.at(parent).parent;
            let side = self.side_of(parent);
            let uncle = self.at(grandparent).child[1 - side];
            if self.at(uncle).red {
                self.at_mut(parent).red = false;
                self.at_mut(uncle).red = false;
                self.at_mut(grandparent).red = true;
                node = grandparent;
                continue;
            }
            if self.side_of(node) != side {
                self.rotate(parent, side);
                parent = node;
            }
            self.at_mut(parent).red = false;
            self.at_mut(grandparent).red = true;
            self.rotate(grandparent, 1 - side);
            break;
        }
        let root = self.root;
        self.at_mut(root).red = false;
    }

    /// On which side of its parent a node is.
    fn side_of(&self, node: u32) -> usize {
        usize::from(self.at(self.at(node).parent).child[RIGHT] == node)
    }

    /// Puts `new` where `old` is below its parent.
    fn replace(&mut self, old: u32, new: u32) {
        let parent = self.at(old).parent;
        if parent == NIL {
            self.root = new;
        } else {
            let side = self.side_of(old);
            self.at_mut(parent).child[side] = new;
        }
        // The shared leaf too: mending a removal asks for its parent.
        self.at_mut(new).parent = parent;
    }

    /// Moves a node down to `side`; its child of the other side takes its place.
    fn rotate(&mut self, node: u32, side: usize) {
        let up = self.at(node).child[1 - side];
        let inner = self.at(up).child[side];
        self.at_mut(node).child[1 - side] = inner;
        if inner != NIL {
            self.at_mut(inner).parent = node;
        }
        self.replace(node, up);
        self.at_mut(up).child[side] = node;
        self.at_mut(node).parent = up;
    }

    /// Takes a key away.
    pub fn remove(&mut self, key: u64) -> Option<V> {
        let mut node = self.root;
        while node != NIL && self.at(node).key != key {
            node = self.at(node).child[usize::from(self.at(node).key < key)];
        }
        if node == NIL {
            return None;
        }
        let value = self.at(node).value;
        let [left, right] = self.at(node).child;
        let (moved, lost_black) = if left == NIL {
            self.replace(node, right);
            (right, !self.at(node).red)
        } else if right == NIL {
            self.replace(node, left);
            (left, !self.at(node).red)
        } else {
            self.replace_by_successor(node)
        };
        if lost_black {
            self.mend_removal(moved);
        }
        *self.at_mut(NIL) = leaf();
        self.spare.push(node);
        if self.root == NIL {
            *self = Self::default();
        }
        Some(value)
    }

    /// Puts the next node in the place of one with two children. Returns what has moved up, and whether the
    /// way through it has lost a black node.
    fn replace_by_successor(&mut self, node: u32) -> (u32, bool) {
        let [left, right] = self.at(node).child;
        let mut next = right;
        while self.at(next).child[LEFT] != NIL {
            next = self.at(next).child[LEFT];
        }
        let lost_black = !self.at(next).red;
        let moved = self.at(next).child[RIGHT];
        if next == right {
            self.at_mut(moved).parent = next;
        } else {
            self.replace(next, moved);
            self.at_mut(next).child[RIGHT] = right;
            self.at_mut(right).parent = next;
        }
        self.replace(node, next);
        self.at_mut(next).child[LEFT] = left;
        self.at_mut(left).parent = next;
        self.at_mut(next).red = self.at(node).red;
        (moved, lost_black)
    }

    fn mend_removal(&mut self, mut node: u32) {
        while node != self.root && !self.at(node).red {
            let parent = self.at(node).parent;
            let side = self.side_of_below(node, parent);
            let mut sibling = self.at(parent).child[1 - side];
            if self.at(sibling).red {
                self.at_mut(sibling).red = false;
                self.at_mut(parent).red = true;
                self.rotate(parent, side);
                sibling = self.at(parent).child[1 - side];
            }
            let children = self.at(sibling).child;
            if !self.at(children[LEFT]).red && !self.at(children[RIGHT]).red {
                self.at_mut(sibling).red = true;
                node = parent;
                continue;
            }
            if !self.at(children[1 - side]).red {
                self.at_mut(children[side]).red = false;
                self.at_mut(sibling).red = true;
                self.rotate(sibling, 1 - side);
                sibling = self.at(parent).child[1 - side];
            }
            self.at_mut(sibling).red = self.at(parent).red;
            self.at_mut(parent).red = false;
            let outer = self.at(sibling).child[1 - side];
            self.at_mut(outer).red = false;
            self.rotate(parent, side);
            node = self.root;
        }
        self.at_mut(node).red = false;
    }

    /// As [`side_of`](Self::side_of), for a node that may be the shared leaf.
    fn side_of_below(&self, node: u32, parent: u32) -> usize {
        usize::from(self.at(parent).child[LEFT] != node)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use amphi_rt::random::Generator;

    use super::{LEFT, NIL, RIGHT, RbTree};

    /// Black nodes on every way down; panics where an invariant does not hold.
    fn black_height(tree: &RbTree<u64>, node: u32) -> usize {
        if node == NIL {
            return 1;
        }
        let this = tree.at(node);
        for child in this.child.into_iter().filter(|child| *child != NIL) {
            assert_eq!(tree.at(child).parent, node, "a child knows its parent");
            assert!(!(this.red && tree.at(child).red), "a red node has black children");
        }
        let left = black_height(tree, this.child[LEFT]);
        assert_eq!(left, black_height(tree, this.child[RIGHT]), "all ways have as many black nodes");
        left + usize::from(!this.red)
    }

    #[test]
    fn holds_what_a_sorted_map_holds_and_stays_balanced() {
        for seed in 0..20 {
            let mut random = Generator::new(seed);
            let (mut tree, mut map) = (RbTree::default(), BTreeMap::new());
            for step in 0..2000 {
                let key = random.below(300);
                if random.below(5) < if step % 400 < 200 { 4 } else { 1 } {
                    tree.insert(key, step);
                    map.insert(key, step);
                } else {
                    assert_eq!(tree.remove(key), map.remove(&key));
                }
                let key = random.below(300);
                assert_eq!(tree.floor(key), map.range(..=key).next_back().map(|(key, value)| (*key, *value)));
                assert_eq!(tree.ceiling(key), map.range(key..).next().map(|(key, value)| (*key, *value)));
                assert_eq!(tree.len(), map.len());
                black_height(&tree, tree.root);
                assert!(!tree.at(tree.root).red, "the root is black");
            }
        }
    }
}
