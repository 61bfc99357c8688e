//! Until when to wait.

/// A moment of [`now_ns`](crate::time::now_ns) until which to wait for something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(u64);

impl Deadline {
    /// Waits for ever.
    pub const NEVER: Self = Self(u64::MAX);

    /// The moment at which [`now_ns`](crate::time::now_ns) is `ns`.
    #[must_use]
    pub const fn at_ns(ns: u64) -> Self {
        Self(ns)
    }

    /// The moment in ns.
    #[must_use]
    pub const fn ns(self) -> u64 {
        self.0
    }
}
