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

    /// Percent of the bytes of writes that go by bytes: sizes evenly from `least` to `most`, at any byte.
    fn by_bytes(least: u64, most: u64, threshold: u64) -> f64 {
        const SIZES: u64 = 200;
        const PLACES: u64 = 128;
        let (mut memory, mut all) = (0, 0);
        for size in 0..SIZES {
            // The middles of even steps stand for all in between.
            let size = least + (most - least) * (2 * size + 1) / (2 * SIZES);
            for place in 0..PLACES {
                let start = threshold * (2 * place + 1) / (2 * PLACES);
                all += size;
                memory += split(start..start + size, threshold, threshold)
                    .map(|part| match part {
                        Part::Blocks(_) => 0,
                        Part::Bytes(_, bytes) => bytes.end - bytes.start,
                    })
                    .sum::<u64>();
            }
        }
        memory as f64 * 100.0 / all as f64
    }

    /// The shares that the arithmetic of even sizes and places gives, to the paper's digit. Where the paper
    /// has another value it stands behind: no even sizes and places come to those.
    #[test]
    fn table_4_of_the_paper() {
        const KB: u64 = 1 << 10;
        let around = |mean: u64| (mean - mean / 10, mean + mean / 10);
        let sizes = [
            around(4 * KB),
            around(16 * KB),
            around(64 * KB),
            around(256 * KB),
            around(1024 * KB),
            (1, 1024 * KB),
        ];
        // 97.5 (97.0), 25.0 (24.8), 12.1 (12.4), 43.7 (50.1).
        let wanted: [(u64, [f64; 6]); 5] = [
            (4 * KB, [97.5, 25.0, 6.2, 1.6, 0.4, 0.8]),
            (16 * KB, [100.0, 97.5, 25.0, 6.2, 1.6, 3.1]),
            (64 * KB, [100.0, 100.0, 97.5, 25.0, 6.2, 12.1]),
            (256 * KB, [100.0, 100.0, 100.0, 97.5, 25.0, 43.7]),
            (1024 * KB, [100.0, 100.0, 100.0, 100.0, 97.5, 100.0]),
        ];
        for (threshold, row) in wanted {
            for ((least, most), wanted) in sizes.into_iter().zip(row) {
                let share = by_bytes(least, most, threshold);
                // 6.25 and 43.75 are printed as 6.2 and 43.7.
                let is_printed_so = (share - wanted).abs() <= 0.0505;
                assert!(is_printed_so, "threshold {threshold}, {least} to {most}: {share}, not {wanted}");
            }
        }
    }
}
