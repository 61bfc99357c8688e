//! The standard atomics with a [`crate::task::point`] before each access, so that a search can interleave
//! algorithms without locks.
//!
//! Outside a search they cost one look at a thread-local more than the standard ones. A search runs on one OS
//! thread: it finds wrong interleavings, not missing memory orderings.

use crate::task::point;
pub use std::sync::atomic::{Ordering, fence};

macro_rules! atomic {
    ($name:ident, $value:ty, $what:literal) => {
        #[doc = $what]
        #[derive(Debug, Default)]
        pub struct $name(std::sync::atomic::$name);

        impl $name {
            /// With this value.
            #[must_use]
            pub const fn new(value: $value) -> Self {
                Self(std::sync::atomic::$name::new(value))
            }

            /// Reads it.
            #[inline]
            pub fn load(&self, order: Ordering) -> $value {
                point();
                self.0.load(order)
            }

            /// Writes it.
            #[inline]
            pub fn store(&self, value: $value, order: Ordering) {
                point();
                self.0.store(value, order);
            }

            /// Writes it and returns what it was.
            #[inline]
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                point();
                self.0.swap(value, order)
            }

            /// Writes `new` if it is `current`.
            ///
            /// # Errors
            /// What it is instead.
            #[inline]
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                point();
                self.0.compare_exchange(current, new, success, failure)
            }

            /// As `compare_exchange`, but may fail for no reason.
            ///
            /// # Errors
            /// What it is.
            #[inline]
            pub fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                point();
                self.0.compare_exchange_weak(current, new, success, failure)
            }

            /// The standard atomic, for what is not here.
            pub fn as_std(&self) -> &std::sync::atomic::$name {
                &self.0
            }
        }
    };
}

macro_rules! counter {
    ($name:ident, $value:ty) => {
        impl $name {
            /// Adds, wrapping around, and returns what it was.
            #[inline]
            pub fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                point();
                self.0.fetch_add(value, order)
            }

            /// Subtracts, wrapping around, and returns what it was.
            #[inline]
            pub fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                point();
                self.0.fetch_sub(value, order)
            }

            /// Takes the larger and returns what it was.
            #[inline]
            pub fn fetch_max(&self, value: $value, order: Ordering) -> $value {
                point();
                self.0.fetch_max(value, order)
            }
        }
    };
}

atomic!(AtomicBool, bool, "A boolean.");
atomic!(AtomicU32, u32, "A 32-bit number.");
atomic!(AtomicU64, u64, "A 64-bit number.");
atomic!(AtomicUsize, usize, "A number as large as an address.");
counter!(AtomicU32, u32);
counter!(AtomicU64, u64);
counter!(AtomicUsize, usize);
