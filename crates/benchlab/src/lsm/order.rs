//! The order of the store's keys: byte by byte, as the store's own, compared by words in place. Keys of
//! records begin alike, and their comparison is what seeking and merging do most.

use std::cmp::Ordering;

use rusty_leveldb::{Cmp, DefaultCmp};

/// Byte by byte.
pub struct ByBytes;

/// The first word from `at` on, as a number that is ordered as its bytes are.
#[inline]
fn word(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map(|word| u64::from_be_bytes(*word))
}

impl Cmp for ByBytes {
    #[inline]
    fn cmp(&self, a: &[u8], b: &[u8]) -> Ordering {
        let mut at = 0;
        while let (Some(left), Some(right)) = (word(a, at), word(b, at)) {
            if left != right {
                return left.cmp(&right);
            }
            at += 8;
        }
        a[at..].iter().cmp(&b[at..])
    }

    fn find_shortest_sep(&self, from: &[u8], to: &[u8]) -> Vec<u8> {
        DefaultCmp.find_shortest_sep(from, to)
    }

    fn find_short_succ(&self, key: &[u8]) -> Vec<u8> {
        DefaultCmp.find_short_succ(key)
    }

    fn id(&self) -> &'static str {
        DefaultCmp.id()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_order_of_slices() {
        let alike: Vec<u8> = (0..24).collect();
        let mut keys: Vec<Vec<u8>> = (0..=24).map(|len| alike[..len].to_vec()).collect();
        for at in 0..24 {
            for byte in [0, 0x7F, 0x80, 0xFF] {
                let mut other = alike.clone();
                other[at] = byte;
                keys.push(other);
            }
        }
        for a in &keys {
            for b in &keys {
                assert_eq!(ByBytes.cmp(a, b), a.cmp(b), "{a:?} {b:?}");
            }
        }
    }
}
