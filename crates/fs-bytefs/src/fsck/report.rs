//! What a check reports: counts, findings, progress while it works, and why it could not run.

use serde::Serialize;

use super::finding::Finding;
use crate::format::FormatError;

/// What a check is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Replaying the device's log and reading bitmaps.
    Loading,
    /// Reading inodes and extents; counted in pages of the inode table.
    Inodes,
    /// Reading directories; counted in directories.
    Directories,
    /// Comparing link counts and bitmaps.
    Comparing,
    /// Mending what was found; counted in rounds, after each of which the check runs again.
    Repairing,
}

/// How far a check is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What it is doing.
    pub phase: Phase,
    /// Units done in this phase.
    pub done: u64,
    /// Units in this phase; can grow, and is 0 where it is not known.
    pub total: u64,
}

/// The outcome of a check.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// The file system's label.
    pub label: String,
    /// Regular files.
    pub files: u64,
    /// Directories, the root included.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Device files, FIFOs and sockets.
    pub special: u64,
    /// Inodes in the file system, number 0 included.
    pub inodes: u64,
    /// Inodes waiting for work at the next mount: deleted while open, or being cut.
    pub orphans: u64,
    /// Pages in the file system.
    pub pages: u64,
    /// Pages in use, metadata included.
    pub pages_used: u64,
    /// Log entries of uncommitted operations that recovery dropped.
    pub log_entries_dropped: u64,
    /// Whether the last mount ended with an unmount.
    pub cleanly_unmounted: bool,
    /// Errors found, also those not listed.
    pub errors: u64,
    /// Warnings found, also those not listed.
    pub warnings: u64,
    /// Findings beyond the first 100,000, which are counted but not listed.
    pub findings_not_listed: u64,
    /// What was found, in the order of the passes.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Neither errors nor warnings.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.errors == 0 && self.warnings == 0
    }
}

/// Why a check could not run. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FsckError {
    /// There is no ByteFS of a version that this program knows.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The device failed.
    #[error("the device failed during the check: {0}")]
    Device(#[from] amphi_device::Error),
}
