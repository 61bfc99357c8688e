//! Decisions that a seed repeats: which lines a power cut takes, in which parts.
//!
//! This draws no randomness of its own: the caller brings the seed.

pub(crate) use amphi_rt::hash::mix;
use amphi_rt::random::Generator;

/// A stream of numbers that depends on its seed alone.
#[derive(Clone, Debug)]
pub(crate) struct Dice(Generator);

impl Dice {
    /// The stream of a seed.
    pub(crate) const fn new(seed: u64) -> Self {
        Self(Generator::new(seed))
    }

    /// The stream for one of several things that one seed decides.
    pub(crate) const fn part(seed: u64, part: u64) -> Self {
        Self::new(mix(seed ^ mix(part.wrapping_add(0x5851_f42d_4c95_7f2d))))
    }

    /// The seed of the rest of the stream.
    pub(crate) const fn seed(&self) -> u64 {
        self.0.seed()
    }

    /// The next number.
    pub(crate) const fn next(&mut self) -> u64 {
        self.0.next()
    }

    /// The next number, below `bound`, which is not zero.
    pub(crate) const fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }
}
