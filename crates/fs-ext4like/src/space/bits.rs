//! Searching a bitmap block, 64 bits at a time. Bit `n` is bit `n % 8` of byte `n / 8`.

use crate::journal::buffers::Block;

/// Whether bit `at` is set.
pub const fn is_set(bits: &Block, at: u32) -> bool {
    bits[at as usize / 8] & (1 << (at % 8)) != 0
}

/// Sets or clears the bits `at .. at + len`. Returns whether all of them were the other way before.
pub fn change(bits: &mut Block, at: u32, len: u32, set: bool) -> bool {
    let mut all = true;
    for bit in at..at + len {
        all &= is_set(bits, bit) != set;
        let mask = 1 << (bit % 8);
        if set {
            bits[bit as usize / 8] |= mask;
        } else {
            bits[bit as usize / 8] &= !mask;
        }
    }
    all
}

/// The first bit at or after `from` and below `end` that is set, or clear; `end` if there is none.
pub fn next(bits: &Block, from: u32, end: u32, set: bool) -> u32 {
    let mut at = from;
    while at < end {
        let word = at / 64 * 64;
        let bytes = bits[word as usize / 8..].first_chunk::<8>().expect("a block is whole words");
        let value = u64::from_le_bytes(*bytes);
        let wanted = (if set { value } else { !value }) >> (at - word);
        if wanted != 0 {
            return (at + wanted.trailing_zeros()).min(end);
        }
        at = word + 64;
    }
    end
}

/// A run of clear bits below `end`: the first of `want` at or after `from`, else the first of `want`; if
/// there is none and `any`, the longest.
pub fn clear_run(bits: &Block, from: u32, end: u32, want: u32, any: bool) -> Option<(u32, u32)> {
    let mut longest = (0, 0);
    for (mut at, stop) in [(from.min(end), end), (0, from.min(end))] {
        while at < stop {
            let start = next(bits, at, stop, false);
            if start == stop {
                break;
            }
            let len = next(bits, start, end.min(start + want), true) - start;
            if len >= want {
                return Some((start, want));
            }
            if len > longest.1 {
                longest = (start, len);
            }
            at = start + len;
        }
    }
    (any && longest.1 > 0).then_some(longest)
}

/// Number of bits set among the first `end`.
pub fn count(bits: &Block, end: u32) -> u32 {
    let whole = end as usize / 8;
    let ones: u32 = bits[..whole].iter().map(|byte| byte.count_ones()).sum();
    ones + (whole as u32 * 8..end).filter(|bit| is_set(bits, *bit)).count() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::BLOCK;

    #[test]
    fn runs_are_found_from_a_place_on_and_then_anywhere() {
        let mut bits = [0; BLOCK];
        assert!(change(&mut bits, 0, 100, true) && !change(&mut bits, 99, 2, true));
        assert!(change(&mut bits, 110, 5, true));
        assert_eq!(clear_run(&bits, 0, 1000, 9, false), Some((101, 9)));
        assert_eq!(clear_run(&bits, 0, 1000, 10, false), Some((115, 10)));
        assert_eq!(clear_run(&bits, 990, 1000, 20, false), Some((115, 20)));
        assert_eq!(clear_run(&bits, 0, 115, 20, false), None);
        assert_eq!(clear_run(&bits, 0, 115, 20, true), Some((101, 9)));
        assert_eq!(
            (count(&bits, 1000), next(&bits, 0, 50, false), next(&bits, 115, 1000, true)),
            (106, 50, 1000)
        );
    }
}
