//! How evenly erase blocks are worn: fewest, most and mean erases, and how many blocks lie in which range.

use serde::Serialize;

/// Blocks that were erased between `from` and `to` times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct EraseBucket {
    /// Fewest erases.
    pub from: u32,
    /// Most erases.
    pub to: u32,
    /// Blocks.
    pub blocks: u64,
}

/// The wear of all blocks.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Wear {
    pub(crate) min: u32,
    pub(crate) max: u32,
    pub(crate) mean: f64,
    pub(crate) buckets: Vec<EraseBucket>,
}

impl Wear {
    /// Of the erase counts of all blocks. Ranges are 0, 1, 2–3, 4–7 and so on; those without blocks are left
    /// out.
    pub(crate) fn of(erases: impl Iterator<Item = u32>) -> Self {
        let mut counts = [0_u64; 33];
        let (mut min, mut max, mut sum, mut blocks) = (u32::MAX, 0, 0_u64, 0_u64);
        for erases in erases {
            min = min.min(erases);
            max = max.max(erases);
            sum += u64::from(erases);
            blocks += 1;
            counts[(u32::BITS - erases.leading_zeros()) as usize] += 1;
        }
        if blocks == 0 {
            return Self::default();
        }
        let range = |(at, &blocks): (usize, &u64)| EraseBucket {
            from: if at == 0 { 0 } else { 1 << (at - 1) },
            to: ((1_u64 << at) - 1) as u32,
            blocks,
        };
        let buckets = counts.iter().enumerate().filter(|(_, blocks)| **blocks > 0).map(range).collect();
        Self { min, max, mean: sum as f64 / blocks as f64, buckets }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wear_is_summed_and_sorted_into_ranges() {
        let wear = Wear::of([0, 0, 1, 3, 2, 7, u32::MAX].into_iter());
        assert_eq!((wear.min, wear.max), (0, u32::MAX));
        assert!((wear.mean - f64::from(u32::MAX) / 7.0 - 13.0 / 7.0).abs() < 1e-3, "{}", wear.mean);
        let ranges: Vec<_> = wear.buckets.iter().map(|range| (range.from, range.to, range.blocks)).collect();
        assert_eq!(ranges, [(0, 0, 2), (1, 1, 1), (2, 3, 2), (4, 7, 1), (1 << 31, u32::MAX, 1)]);
        assert_eq!(Wear::of([].into_iter()), Wear::default());
    }
}
