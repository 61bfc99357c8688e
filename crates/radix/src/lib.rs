//! A radix tree from `u64` keys to values, 64 ways per level: the index of cached pages within a file and of
//! inodes within a cache shard (ByteFS's BY-9, and the XArray of its §4.6). Lookups touch one node per six
//! bits of the largest key; keys are visited in order.
#![forbid(unsafe_code)]

const BITS: u32 = 6;
const FANOUT: usize = 1 << BITS;

#[expect(clippy::large_enum_variant, reason = "a node is boxed wherever it is kept")]
enum Node<T> {
    Inner { children: [Option<Box<Node<T>>>; FANOUT], used: u8 },
    Leaf { values: [Option<T>; FANOUT], used: u8 },
}

/// A map from `u64` to `T`.
pub struct Radix<T> {
    root: Option<Box<Node<T>>>,
    levels: u32,
    len: usize,
}

impl<T> Default for Radix<T> {
    fn default() -> Self {
        Self { root: None, levels: 0, len: 0 }
    }
}

const fn slot(key: u64, level: u32) -> usize {
    ((key >> (BITS * level)) as usize) & (FANOUT - 1)
}

impl<T> Node<T> {
    fn new(level: u32) -> Box<Self> {
        Box::new(if level == 0 {
            Self::Leaf { values: [const { None }; FANOUT], used: 0 }
        } else {
            Self::Inner { children: [const { None }; FANOUT], used: 0 }
        })
    }

    fn insert(&mut self, key: u64, level: u32, value: T) -> Option<T> {
        match self {
            Self::Leaf { values, used } => {
                let old = values[slot(key, 0)].replace(value);
                *used += u8::from(old.is_none());
                old
            }
            Self::Inner { children, used } => {
                let child = &mut children[slot(key, level)];
                *used += u8::from(child.is_none());
                child.get_or_insert_with(|| Self::new(level - 1)).insert(key, level - 1, value)
            }
        }
    }

    /// Removes a key; the flag says that this node is now empty.
    fn remove(&mut self, key: u64, level: u32) -> (Option<T>, bool) {
        match self {
            Self::Leaf { values, used } => {
                let old = values[slot(key, 0)].take();
                *used -= u8::from(old.is_some());
                (old, *used == 0)
            }
            Self::Inner { children, used } => {
                let child = &mut children[slot(key, level)];
                let Some(node) = child else { return (None, false) };
                let (old, empty) = node.remove(key, level - 1);
                if empty {
                    *child = None;
                    *used -= 1;
                }
                (old, *used == 0)
            }
        }
    }

    fn next(&self, from: u64, level: u32, prefix: u64) -> Option<(u64, &T)> {
        let start = slot(from, level);
        match self {
            Self::Leaf { values, .. } => values[start..]
                .iter()
                .enumerate()
                .find_map(|(i, value)| value.as_ref().map(|value| (prefix | (start + i) as u64, value))),
            Self::Inner { children, .. } => children[start..].iter().enumerate().find_map(|(i, child)| {
                let from = if i == 0 { from } else { 0 };
                let prefix = prefix | (((start + i) as u64) << (BITS * level));
                child.as_ref().and_then(|child| child.next(from, level - 1, prefix))
            }),
        }
    }

    fn retain(&mut self, level: u32, prefix: u64, keep: &mut dyn FnMut(u64, &mut T) -> bool) -> usize {
        let mut dropped = 0;
        match self {
            Self::Leaf { values, used } => {
                for (i, slot) in values.iter_mut().enumerate() {
                    if slot.as_mut().is_some_and(|value| !keep(prefix | i as u64, value)) {
                        *slot = None;
                        *used -= 1;
                        dropped += 1;
                    }
                }
            }
            Self::Inner { children, used } => {
                for (i, slot) in children.iter_mut().enumerate() {
                    if let Some(child) = slot {
                        dropped += child.retain(level - 1, prefix | ((i as u64) << (BITS * level)), keep);
                        if child.is_empty() {
                            *slot = None;
                            *used -= 1;
                        }
                    }
                }
            }
        }
        dropped
    }

    const fn is_empty(&self) -> bool {
        match self {
            Self::Leaf { used, .. } | Self::Inner { used, .. } => *used == 0,
        }
    }
}

impl<T> Radix<T> {
    const fn reaches(&self, key: u64) -> bool {
        self.levels > 0 && (self.levels * BITS >= u64::BITS || key >> (BITS * self.levels) == 0)
    }

    /// Number of keys.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no keys.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value of `key`.
    pub fn get(&self, key: u64) -> Option<&T> {
        if !self.reaches(key) {
            return None;
        }
        let mut node = self.root.as_deref()?;
        let mut level = self.levels - 1;
        loop {
            match node {
                Node::Leaf { values, .. } => return values[slot(key, 0)].as_ref(),
                Node::Inner { children, .. } => node = children[slot(key, level)].as_deref()?,
            }
            level -= 1;
        }
    }

    /// The value of `key`, to change.
    pub fn get_mut(&mut self, key: u64) -> Option<&mut T> {
        if !self.reaches(key) {
            return None;
        }
        let mut node = self.root.as_deref_mut()?;
        let mut level = self.levels - 1;
        loop {
            match node {
                Node::Leaf { values, .. } => return values[slot(key, 0)].as_mut(),
                Node::Inner { children, .. } => node = children[slot(key, level)].as_deref_mut()?,
            }
            level -= 1;
        }
    }

    /// Sets the value of `key` and returns the old one.
    pub fn insert(&mut self, key: u64, value: T) -> Option<T> {
        while !self.reaches(key) {
            let mut grown = Node::new(self.levels);
            if let (Some(old), Node::Inner { children, used }) = (self.root.take(), grown.as_mut()) {
                children[0] = Some(old);
                *used = 1;
            }
            self.root = Some(grown);
            self.levels += 1;
        }
        let level = self.levels - 1;
        let old = self.root.get_or_insert_with(|| Node::new(level)).insert(key, level, value);
        self.len += usize::from(old.is_none());
        old
    }

    /// Removes `key` and returns its value.
    pub fn remove(&mut self, key: u64) -> Option<T> {
        if !self.reaches(key) {
            return None;
        }
        let (old, empty) = self.root.as_mut()?.remove(key, self.levels - 1);
        self.len -= usize::from(old.is_some());
        if empty {
            self.root = None;
            self.levels = 0;
        }
        old
    }

    /// The first key at or after `from`, with its value.
    pub fn next(&self, from: u64) -> Option<(u64, &T)> {
        if !self.reaches(from) {
            return None;
        }
        self.root.as_ref()?.next(from, self.levels - 1, 0)
    }

    /// Keeps the entries for which `keep` says so.
    pub fn retain(&mut self, mut keep: impl FnMut(u64, &mut T) -> bool) {
        if let Some(root) = &mut self.root {
            self.len -= root.retain(self.levels - 1, 0, &mut keep);
            if root.is_empty() {
                self.root = None;
                self.levels = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Op {
        Insert(u64, u32),
        Remove(u64),
        Next(u64),
        DropOdd,
    }

    fn key() -> impl Strategy<Value = u64> {
        prop_oneof![0..200_u64, 4000..4200_u64, Just(u64::MAX), any::<u64>()]
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            6 => (key(), any::<u32>()).prop_map(|(k, v)| Op::Insert(k, v)),
            3 => key().prop_map(Op::Remove),
            3 => key().prop_map(Op::Next),
            1 => Just(Op::DropOdd),
        ]
    }

    proptest! {
        #[test]
        fn behaves_like_a_btree_map(ops in proptest::collection::vec(op(), 0..300)) {
            let mut radix = Radix::default();
            let mut map = BTreeMap::new();
            for op in ops {
                match op {
                    Op::Insert(k, v) => prop_assert_eq!(radix.insert(k, v), map.insert(k, v)),
                    Op::Remove(k) => prop_assert_eq!(radix.remove(k), map.remove(&k)),
                    Op::Next(k) => {
                        prop_assert_eq!(radix.next(k), map.range(k..).next().map(|(k, v)| (*k, v)));
                        prop_assert_eq!(radix.get(k), map.get(&k));
                        prop_assert_eq!(radix.get_mut(k), map.get_mut(&k));
                    }
                    Op::DropOdd => {
                        radix.retain(|_, v| *v % 2 == 0);
                        map.retain(|_, v| *v % 2 == 0);
                    }
                }
                prop_assert_eq!((radix.len(), radix.is_empty()), (map.len(), map.is_empty()));
            }
        }
    }
}
