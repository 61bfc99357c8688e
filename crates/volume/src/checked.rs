//! What a check counts and finds while it runs, for file systems that have files in pages.

use std::fmt;

use serde::Serialize;
use serde_json::json;

use crate::report::{Report, Severity};

/// What a check of one file system can find. It displays as a sentence.
pub trait Found: fmt::Display + Serialize {
    /// How bad it is.
    fn severity(&self) -> Severity;
}

/// The outcome of a check, with findings of a file system's own kind and what else it has to say.
#[derive(Clone, Debug, Serialize)]
pub struct Checked<F, O = ()> {
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
    /// Inodes in the file system.
    pub inodes: u64,
    /// Inodes that the next mount deletes, or whose cutting it finishes.
    pub orphans: u64,
    /// Pages in the file system.
    pub pages: u64,
    /// Pages in use, metadata included.
    pub pages_used: u64,
    /// Whether the last mount ended with an unmount.
    pub cleanly_unmounted: bool,
    /// Errors found, also those not listed.
    pub errors: u64,
    /// Warnings found, also those not listed.
    pub warnings: u64,
    /// What was found, in the order in which it was.
    pub findings: Vec<F>,
    /// The file system's own.
    #[serde(flatten)]
    pub own: O,
}

impl<F, O: Default> Default for Checked<F, O> {
    fn default() -> Self {
        Self {
            label: String::new(),
            files: 0,
            directories: 0,
            symlinks: 0,
            special: 0,
            inodes: 0,
            orphans: 0,
            pages: 0,
            pages_used: 0,
            cleanly_unmounted: false,
            errors: 0,
            warnings: 0,
            findings: Vec::new(),
            own: O::default(),
        }
    }
}

impl<F, O> Checked<F, O> {
    /// Most findings listed, so that a hostile image cannot exhaust memory.
    pub const LISTED: usize = 100_000;

    /// Neither errors nor warnings.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.errors == 0 && self.warnings == 0
    }
}

impl<F: Found, O: Serialize> Checked<F, O> {
    /// Counts a finding, and lists it unless there are too many. Whether it did.
    pub fn add(&mut self, finding: F) -> bool {
        match finding.severity() {
            Severity::Info => {}
            Severity::Warning => self.warnings += 1,
            Severity::Error => self.errors += 1,
        }
        let has_room = self.findings.len() < Self::LISTED;
        if has_room {
            self.findings.push(finding);
        }
        has_room
    }

    /// What all file systems' reports have in common.
    #[must_use]
    pub fn report(&self) -> Report {
        Report {
            errors: self.errors,
            warnings: self.warnings,
            findings: self.findings.iter().map(|found| (found.severity(), found.to_string())).collect(),
            files: self.files,
            directories: self.directories,
            symlinks: self.symlinks,
            pages: self.pages,
            pages_used: self.pages_used,
            cleanly_unmounted: self.cleanly_unmounted,
            own: json!(self),
        }
    }
}
