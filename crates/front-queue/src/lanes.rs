//! Which lanes of a way into a file system nobody uses.

use std::sync::atomic::{AtomicU64, Ordering};

/// Lanes that nobody uses, a bit each.
#[derive(Debug)]
pub struct FreeLanes(AtomicU64);

impl FreeLanes {
    /// So many, 1 to 64, all free; of more the first 64.
    #[must_use]
    pub const fn new(count: u32) -> Self {
        let count = if count < u64::BITS { count } else { u64::BITS };
        Self(AtomicU64::new(u64::MAX >> (u64::BITS - count)))
    }

    /// One of them; none if all are taken.
    pub fn take(&self) -> Option<u32> {
        let mut free = self.0.load(Ordering::Relaxed);
        while free != 0 {
            let without = free & (free - 1);
            match self.0.compare_exchange_weak(free, without, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(free.trailing_zeros()),
                Err(now) => free = now,
            }
        }
        None
    }

    /// A lane that was taken is free again.
    pub fn give_back(&self, number: u32) {
        self.0.fetch_or(1 << number, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_taken_once_and_can_be_taken_again() {
        let lanes = FreeLanes::new(3);
        let taken: Vec<_> = std::iter::from_fn(|| lanes.take()).collect();
        assert_eq!(taken, [0, 1, 2]);
        lanes.give_back(1);
        assert_eq!((lanes.take(), lanes.take()), (Some(1), None));
        let many = FreeLanes::new(100);
        assert_eq!(std::iter::from_fn(|| many.take()).count(), 64);
    }
}
