//! Randomness: from the Sim's seed in virtual time, from the system otherwise.

use crate::raw::in_sim;
use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

/// SplitMix64: small, fast, and good enough to choose schedules and workloads with.
#[derive(Debug, Clone)]
pub struct Generator(u64);

impl Generator {
    /// A generator whose numbers `seed` decides.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    #[expect(clippy::should_implement_trait, reason = "an endless generator has no use for Option")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which must not be zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        scale(self.next(), bound)
    }
}

fn scale(number: u64, bound: u64) -> u64 {
    ((u128::from(number) * u128::from(bound)) >> 64) as u64
}

/// A random 64-bit number.
#[must_use]
pub fn u64() -> u64 {
    thread_local!(static REAL: Cell<Generator> = Cell::new(Generator::new(RandomState::new().hash_one(0_u8))));
    in_sim(crate::sim::core::Core::random).unwrap_or_else(|| {
        REAL.with(|cell| {
            let mut generator = cell.replace(Generator::new(0));
            let number = generator.next();
            cell.set(generator);
            number
        })
    })
}

/// A random number below `bound`, which must not be zero.
#[must_use]
pub fn below(bound: u64) -> u64 {
    scale(u64(), bound)
}
