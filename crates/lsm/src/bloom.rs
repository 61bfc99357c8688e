//! Filters of a table and of a memtable: they say of most absent keys that they are absent (Bloom, CACM
//! 1970).
//!
//! By hand: a table's bits are part of the format, which no crate's are promised to be, and a memtable's are
//! set by many tasks at once. Each is a few lines.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Bits for each key: one absent key in about 120 is not noticed.
const BITS_PER_KEY: usize = 10;
/// Bits that a key sets.
const PROBES: u64 = 7;

/// What the filter knows of a key.
pub fn hash(key: &[u8]) -> u64 {
    // The finisher of splitmix64: it spreads the 32 bits over both halves, which step differently.
    let mut hash = u64::from(crc32c::crc32c(key)) ^ (key.len() as u64) << 32;
    hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ hash >> 31
}

fn bits(hash: u64, bytes: usize) -> impl Iterator<Item = (usize, u8)> {
    let (from, step) = (hash & 0xffff_ffff, hash >> 32 | 1);
    (0..PROBES).map(move |probe| {
        let bit = from.wrapping_add(probe.wrapping_mul(step)) % (bytes as u64 * 8);
        (bit as usize / 8, 1 << (bit % 8))
    })
}

/// The filter of keys with these hashes.
pub fn build(hashes: &[u64]) -> Vec<u8> {
    let mut filter = vec![0; (hashes.len() * BITS_PER_KEY).div_ceil(8).max(8)];
    for hash in hashes {
        for (byte, bit) in bits(*hash, filter.len()) {
            filter[byte] |= bit;
        }
    }
    filter
}

/// Whether a key with this hash may be there. An empty filter, which no table has, knows nothing.
pub fn may_contain(filter: &[u8], hash: u64) -> bool {
    filter.is_empty() || bits(hash, filter.len()).all(|(byte, bit)| filter[byte] & bit != 0)
}

/// Bytes of keys and values for each word of a memtable's filter: a handful of records.
const BYTES_PER_WORD: usize = 512;

/// A memtable's filter, to which any number of tasks add at once. All bits of a key are in one word: a key
/// costs one line of memory.
#[derive(Debug, Default)]
pub struct Shared {
    words: Box<[AtomicU64]>,
}

impl Shared {
    /// One for so many bytes of keys and values.
    pub fn new(bytes: usize) -> Self {
        Self { words: (0..bytes.div_ceil(BYTES_PER_WORD)).map(|_| AtomicU64::new(0)).collect() }
    }

    /// The word of a key with this hash and the bits of it there: four of them.
    fn place(&self, hash: u64) -> Option<(&AtomicU64, u64)> {
        let word = (hash >> 32) as usize % self.words.len().max(1);
        let bits = (0..4).fold(0, |bits, probe| bits | 1 << (hash >> (6 * probe) & 63));
        Some((self.words.get(word)?, bits))
    }

    /// A key with this hash is there from now on.
    pub fn add(&self, hash: u64) {
        if let Some((word, bits)) = self.place(hash)
            && word.load(Relaxed) & bits != bits
        {
            word.fetch_or(bits, Relaxed);
        }
    }

    /// Whether a key with this hash may be there. A filter without words knows nothing.
    pub fn may_contain(&self, hash: u64) -> bool {
        self.place(hash).is_none_or(|(word, bits)| word.load(Relaxed) & bits == bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memtables_filter_denies_no_key_that_was_added_and_most_others() {
        let filter = Shared::new(1 << 20);
        let key = |number: u32| hash(&number.to_le_bytes());
        (0..8192).for_each(|number| filter.add(key(number)));
        assert!((0..8192).all(|number| filter.may_contain(key(number))));
        let wrong = (8192..18_192).filter(|number| filter.may_contain(key(*number))).count();
        assert!(wrong < 500, "{wrong} of 10000");
        assert!(Shared::default().may_contain(key(1)));
    }

    #[test]
    fn present_keys_are_never_denied_and_absent_ones_mostly() {
        let hashes: Vec<u64> = (0..10_000u32).map(|number| hash(&number.to_le_bytes())).collect();
        let filter = build(&hashes);
        assert!(hashes.iter().all(|hash| may_contain(&filter, *hash)));
        let wrong =
            (10_000..20_000u32).filter(|number| may_contain(&filter, hash(&number.to_le_bytes()))).count();
        assert!(wrong < 200, "{wrong} of 10000");
    }
}
