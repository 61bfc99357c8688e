//! Decisions that a seed repeats: which lines a power cut takes, in which parts.
//!
//! This draws no randomness of its own: the caller brings the seed.

/// A stream of numbers that depends on its seed alone (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    /// The stream of a seed.
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The stream for one of several things that one seed decides.
    pub(crate) const fn part(seed: u64, part: u64) -> Self {
        Self(mix(seed ^ mix(part.wrapping_add(0x5851_f42d_4c95_7f2d))))
    }

    /// The seed of the rest of the stream.
    pub(crate) const fn seed(&self) -> u64 {
        self.0
    }

    /// The next number.
    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// The next number, below `bound`, which is not zero.
    pub(crate) const fn below(&mut self, bound: u64) -> u64 {
        ((self.next() as u128 * bound as u128) >> 64) as u64
    }
}

/// Spreads every bit of a number over all of them.
pub(crate) const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
