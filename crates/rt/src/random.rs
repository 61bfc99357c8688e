//! Randomness: from the Sim's seed in virtual time, from the system otherwise.

use crate::hash::mix;
use crate::raw::in_sim;
use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

/// What a generator's state grows by: the golden ratio's part of 2^64.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

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
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// What [`new`](Self::new) makes a generator of that goes on with the same numbers.
    #[must_use]
    pub const fn seed(&self) -> u64 {
        self.0
    }

    /// A number below `bound`, which must not be zero.
    pub const fn below(&mut self, bound: u64) -> u64 {
        scale(self.next(), bound)
    }
}

const fn scale(number: u64, bound: u64) -> u64 {
    ((number as u128 * bound as u128) >> 64) as u64
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
