//! Write splitting (RO-3): which bytes of a write go by blocks, and which by bytes.

use std::ops::Range;

/// A part of a write that lies in one data block, or whole data blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Whole data blocks: the block path.
    Blocks(Range<u64>),
    /// Bytes of one data block, counted from its first: the memory path.
    Bytes(u64, Range<u64>),
}

/// Splits the bytes `range` of a file. Those that fill multiples of `threshold`, itself a multiple of
/// `block`, go by blocks.
pub fn split(range: Range<u64>, block: u64, threshold: u64) -> impl Iterator<Item = Part> {
    let aligned = range.start.next_multiple_of(threshold)..range.end / threshold * threshold;
    let mut at = range.start;
    std::iter::from_fn(move || {
        if at >= range.end {
            return None;
        }
        if aligned.contains(&at) {
            at = aligned.end;
            return Some(Part::Blocks(aligned.start / block..aligned.end / block));
        }
        let number = at / block;
        let end = range.end.min((number + 1) * block);
        let part = Part::Bytes(number, at % block..end - number * block);
        at = end;
        Some(part)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Every byte goes by one path, in order, and by blocks as soon as it fills the threshold.
        #[test]
        fn parts_cover_the_write(start in 0..1_000_000_u64, len in 1..3_000_000_u64, shift in 0..3_u32) {
            let (block, threshold) = (64 << 10, 64 << 10 << shift);
            let mut at = start;
            for part in split(start..start + len, block, threshold) {
                let (from, to) = match part {
                    Part::Blocks(blocks) => (blocks.start * block, blocks.end * block),
                    Part::Bytes(number, bytes) => (number * block + bytes.start, number * block + bytes.end),
                };
                prop_assert_eq!(from, at);
                prop_assert!(to > from);
                let aligned = from % threshold == 0 && to - from >= threshold;
                prop_assert!(!aligned || to % threshold == 0);
                at = to;
            }
            prop_assert_eq!(at, start + len);
        }
    }

    #[test]
    fn figure_3_of_the_paper() {
        let parts: Vec<_> = split(100..200_000, 65_536, 65_536).collect();
        let wanted = [Part::Bytes(0, 100..65_536), Part::Blocks(1..3), Part::Bytes(3, 0..3392)];
        assert_eq!(parts, wanted);
    }
}
