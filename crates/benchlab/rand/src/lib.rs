//! Stands in for version 0.8 of the crate `rand` towards the LSM store (`[patch.crates-io]` in the
//! workspace's `Cargo.toml`), which is the only one that asks for that version.
//!
//! The store samples what its iterators read at moments that it draws by `rand::random`, and compacts files
//! by these samples. From the system's chance that would make two runs with one seed differ; from
//! [`amphi_rt::random`] it is decided by the Sim's seed. Of the crate's interface there is what the store
//! uses.
#![forbid(unsafe_code)]

use amphi_rt::random::{self, Generator};

/// Numbers, one after the other.
pub trait RngCore {
    /// The next one.
    fn next_u32(&mut self) -> u32;
}

/// Generators that a seed decides.
pub trait SeedableRng {
    /// The one of a seed.
    fn seed_from_u64(seed: u64) -> Self;
}

/// Generators.
pub mod rngs {
    /// The usual one.
    pub struct StdRng(pub(crate) super::Generator);
}

impl RngCore for rngs::StdRng {
    fn next_u32(&mut self) -> u32 {
        (self.0.next() >> 32) as u32
    }
}

impl SeedableRng for rngs::StdRng {
    fn seed_from_u64(seed: u64) -> Self {
        Self(Generator::new(seed))
    }
}

/// What can be drawn.
pub trait Drawn {
    /// From 64 random bits.
    fn from_bits(bits: u64) -> Self;
}

impl Drawn for usize {
    fn from_bits(bits: u64) -> Self {
        bits as Self
    }
}

/// A random value: the Sim's seed decides it in virtual time, the system in real time.
#[must_use]
pub fn random<T: Drawn>() -> T {
    T::from_bits(random::u64())
}
