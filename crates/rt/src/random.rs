//! Randomness: from the Sim's seed in virtual time, from the system otherwise.

use std::hash::{BuildHasher, RandomState};

/// A random 64-bit number.
#[must_use]
pub fn u64() -> u64 {
    RandomState::new().hash_one(0_u8)
}

/// A random number below `bound`, which must not be zero.
#[must_use]
pub fn below(bound: u64) -> u64 {
    ((u128::from(u64()) * u128::from(bound)) >> 64) as u64
}
