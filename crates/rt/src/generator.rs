//! Random numbers that a seed decides.

/// Spreads every bit of a number over all of them: what SplitMix64 ends with. The same for ever, so that it
/// may decide what stays: a place on a device, what a seed means.
#[must_use]
#[inline]
pub const fn mix(mut number: u64) -> u64 {
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

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

/// Scales a random number to one below `bound`.
pub(crate) const fn scale(number: u64, bound: u64) -> u64 {
    ((number as u128 * bound as u128) >> 64) as u64
}
