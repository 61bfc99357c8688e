//! Randomness: from the Sim's seed in virtual time, from the system otherwise.

pub use crate::generator::Generator;
use crate::generator::scale;
use crate::raw::in_sim;
use crate::sim::core::Core;
use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

/// A random 64-bit number.
#[must_use]
pub fn u64() -> u64 {
    thread_local!(static REAL: Cell<Generator> = Cell::new(Generator::new(RandomState::new().hash_one(0_u8))));
    in_sim(Core::random).unwrap_or_else(|| {
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
