//! Bugs that tests plant, to prove that they find them.
//!
//! They exist only with the feature `planted-bugs`, which nothing but tests enables; without it every
//! question here is answered "no" when the program is compiled. One is planted for the whole process, by its
//! name in `AMPHI_PLANTED`.

/// A bug of pins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// A write to a pinned range is stored and not synced (TB-10).
    WriteNotSynced,
    /// A file's permissions are not asked for before it is pinned (TB-3).
    PermissionNotAsked,
    /// What was written to a program's log is stored and not synced (TB-13).
    LogNotSynced,
    /// The size of a program's log is not recorded when it is synced (TB-13).
    LogSizeForgotten,
    /// A log's file answers `BA_SYNC` without doing it (TB-12).
    SyncOfFileForgotten,
}

amphi_planted::planted!(environment Bug);
