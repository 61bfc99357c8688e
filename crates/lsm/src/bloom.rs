//! A table's filter: it says of most absent keys that they are absent (Bloom, CACM 1970).
//!
//! By hand: its bits are part of the format, which no crate's are promised to be. It is a few lines.

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

#[cfg(test)]
mod tests {
    use super::*;

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
