//! Hash maps whose order the Sim's seed decides: made inside a Sim, they iterate in the same order in every
//! run of one seed, and in another order under another seed, so that code which depends on the order is
//! noticed. Made in real time, they are keyed by the system's chance, as protection against chosen keys.

pub use crate::generator::mix;
use crate::random;
use foldhash::fast::{FixedState, FoldHasher};
use std::hash::BuildHasher;

/// A hash map for all uses above rt.
pub type HashMap<K, V> = hashbrown::HashMap<K, V, State>;
/// A hash set for all uses above rt.
pub type HashSet<T> = hashbrown::HashSet<T, State>;

/// How a map hashes: drawn once, when the map is made.
#[derive(Debug, Clone)]
pub struct State(FixedState);

impl Default for State {
    fn default() -> Self {
        Self(FixedState::with_seed(random::u64()))
    }
}

impl BuildHasher for State {
    type Hasher = FoldHasher<'static>;

    #[inline]
    fn build_hasher(&self) -> Self::Hasher {
        self.0.build_hasher()
    }
}

#[cfg(test)]
mod tests {
    use super::HashMap;
    use crate::Sim;

    fn order(seed: u64) -> Vec<u32> {
        Sim::new(seed)
            .run(|| (0..100).map(|key| (key, ())).collect::<HashMap<u32, ()>>().into_keys().collect())
    }

    #[test]
    fn the_seed_decides_the_order() {
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
    }
}
