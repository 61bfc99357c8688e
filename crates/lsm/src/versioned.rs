//! A version of a key as the memtable's list orders it: by key, the newest version first.
//!
//! A search compares keys with some thirty nodes. The first 32 bytes of a key stand in the node itself, as
//! numbers: most comparisons follow no pointer and call no function, and a shorter key takes no memory of its
//! own.

use std::cmp::Reverse;

/// Words of a key that stand in the node.
const WORDS: usize = 4;
/// Bytes of these.
const HEAD_BYTES: usize = WORDS * 8;

/// A version of a key.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Versioned {
    /// The first bytes, big-endian, zeros behind a shorter key.
    head: [u64; WORDS],
    /// The bytes behind these.
    rest: Box<[u8]>,
    /// Bytes of the key: of two that differ in zeros at the end the shorter one comes first.
    len: usize,
    /// The newest version first.
    seq: Reverse<u64>,
}

impl Versioned {
    /// That of a key with this sequence number.
    pub fn new(key: &[u8], seq: u64) -> Self {
        let (first, rest) = key.split_at(key.len().min(HEAD_BYTES));
        let mut bytes = [0; HEAD_BYTES];
        bytes[..first.len()].copy_from_slice(first);
        let mut head = [0; WORDS];
        for (word, bytes) in head.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_be_bytes(*bytes);
        }
        Self { head, rest: rest.into(), len: key.len(), seq: Reverse(seq) }
    }

    /// Its sequence number.
    pub const fn seq(&self) -> u64 {
        self.seq.0
    }

    /// Whether the other one is a version of the same key.
    pub fn has_key_of(&self, other: &Self) -> bool {
        self.head == other.head && self.len == other.len && self.rest == other.rest
    }

    /// The key.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len.max(HEAD_BYTES));
        self.head.iter().for_each(|word| bytes.extend_from_slice(&word.to_be_bytes()));
        bytes.truncate(self.len);
        bytes.extend_from_slice(&self.rest);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn versions_are_in_order_of_keys_and_then_newest_first(
            one in vec(0_u8..3, 0..40), other in vec(0_u8..3, 0..40), seqs in any::<(u8, u8)>(), same in 0..40_usize,
        ) {
            // Long beginnings in common, and zeros at the end.
            let other = [&one[..same.min(one.len())], &other[same.min(other.len())..]].concat();
            let (left, right) = (Versioned::new(&one, seqs.0.into()), Versioned::new(&other, seqs.1.into()));
            let wanted = one.cmp(&other).then(seqs.1.cmp(&seqs.0));
            prop_assert_eq!(left.cmp(&right), wanted);
            prop_assert_eq!(left.has_key_of(&right), one == other);
            prop_assert_eq!(left.bytes(), one);
        }
    }
}
