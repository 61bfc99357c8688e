//! Bugs that tests plant, to prove that they find them.
//!
//! They exist only with the feature `planted-bugs`, which nothing but tests enables; without it every question
//! here is answered "no" when the program is compiled. One is planted for the whole process, by its name in
//! `AMPHI_PLANTED`.

/// A bug of pins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// A write to a pinned range is stored and not synced (TB-10).
    WriteNotSynced,
    /// A file's permissions are not asked for before it is pinned (TB-3).
    PermissionNotAsked,
    /// A log's file answers `BA_SYNC` without doing it (TB-12).
    SyncOfFileForgotten,
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
