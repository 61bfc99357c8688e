//! A key as the memtable's list orders it: by its bytes.
//!
//! A search compares keys with some thirty nodes. The first 32 bytes of a key stand in the node itself, as
//! numbers: most comparisons follow no pointer and call no function, and a shorter key takes no memory of its
//! own.

/// Words of a key that stand in the node.
const WORDS: usize = 4;
/// Bytes of these.
const HEAD_BYTES: usize = WORDS * 8;

/// A key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The first bytes, big-endian, zeros behind a shorter key.
    head: [u64; WORDS],
    /// The bytes behind these.
    rest: Box<[u8]>,
    /// Bytes of the key: of two that differ in zeros at the end the shorter one comes first.
    len: usize,
}

impl Key {
    /// That of these bytes.
    pub fn new(key: &[u8]) -> Self {
        let (first, rest) = key.split_at(key.len().min(HEAD_BYTES));
        let mut bytes = [0; HEAD_BYTES];
        bytes[..first.len()].copy_from_slice(first);
        let mut head = [0; WORDS];
        for (word, bytes) in head.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_be_bytes(*bytes);
        }
        Self { head, rest: rest.into(), len: key.len() }
    }

    /// Its bytes.
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
        fn keys_are_in_the_order_of_their_bytes(
            one in vec(0_u8..3, 0..40), other in vec(0_u8..3, 0..40), same in 0..40_usize,
        ) {
            // Long beginnings in common, and zeros at the end.
            let other = [&one[..same.min(one.len())], &other[same.min(other.len())..]].concat();
            let (left, right) = (Key::new(&one), Key::new(&other));
            prop_assert_eq!(left.cmp(&right), one.cmp(&other));
            prop_assert_eq!(left == right, one == other);
            prop_assert_eq!(left.bytes(), one);
        }
    }
}
