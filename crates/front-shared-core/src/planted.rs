//! Bugs that tests plant in the range, to prove that they find them.
//!
//! They exist only with the feature `planted-bugs`, which nothing but `cargo xtask test --only rows` enables;
//! without it every question here is answered "no" when the program is compiled. One is planted for the whole
//! process, by its name in `AMPHI_PLANTED`.

/// A bug of the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// A client that died inside is seen off as if it had left (AU-1).
    DeathInsideOverlooked,
}

/// Whether the bug is planted.
#[cfg(feature = "planted-bugs")]
pub(crate) fn has(bug: Bug) -> bool {
    std::env::var("AMPHI_PLANTED").is_ok_and(|name| name == format!("{bug:?}"))
}

/// Whether the bug is planted: never, in this build.
#[cfg(not(feature = "planted-bugs"))]
pub(crate) const fn has(_bug: Bug) -> bool {
    false
}
