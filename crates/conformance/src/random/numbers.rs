//! The numbers behind a sequence: a function of the seed and nothing else.

use amphi_rt::random::Generator;

/// Steele, Lea and Flood's SplitMix64.
#[derive(Clone, Debug)]
pub(super) struct Numbers(Generator);

impl Numbers {
    pub(super) const fn new(seed: u64) -> Self {
        Self(Generator::new(seed))
    }

    pub(super) const fn next(&mut self) -> u64 {
        self.0.next()
    }

    /// A number below `bound`, which is not zero.
    pub(super) const fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    pub(super) const fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    pub(super) const fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}
