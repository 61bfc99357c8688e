//! What a check found, in what all file systems have in common.

use serde::Serialize;
use serde_json::Value;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing; nothing is wrong.
    Info,
    /// Something is lost to use (space, an inode number) but no file is affected.
    Warning,
    /// Files are damaged or can be damaged by use.
    Error,
}

impl Severity {
    /// The word for people.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Info => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// How far a check is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What it is doing, for people.
    pub phase: &'static str,
    /// Units done in this phase.
    pub done: u64,
    /// Units in this phase; can grow, and is 0 where it is not known.
    pub total: u64,
}

/// Most findings that [`Report::add`] lists.
const LISTED: usize = 1000;

/// The outcome of a check.
#[derive(Clone, Debug)]
pub struct Report {
    /// Errors found, also those not listed.
    pub errors: u64,
    /// Warnings found, also those not listed.
    pub warnings: u64,
    /// What was found, each in a sentence.
    pub findings: Vec<(Severity, String)>,
    /// Regular files.
    pub files: u64,
    /// Directories, the root included.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Pages in the file system.
    pub pages: u64,
    /// Pages in use.
    pub pages_used: u64,
    /// Whether the last mount ended with an unmount.
    pub cleanly_unmounted: bool,
    /// The file system's own report, for JSON.
    pub own: Value,
}

impl Report {
    /// With these findings, all of them, and nothing counted beside.
    #[must_use]
    pub fn of(findings: Vec<(Severity, String)>) -> Self {
        let count = |wanted| findings.iter().filter(|(severity, _)| *severity == wanted).count() as u64;
        Self {
            errors: count(Severity::Error),
            warnings: count(Severity::Warning),
            findings,
            files: 0,
            directories: 0,
            symlinks: 0,
            pages: 0,
            pages_used: 0,
            cleanly_unmounted: false,
            own: Value::Null,
        }
    }

    /// Something is wrong. It is counted; a thousand things are listed.
    pub fn add(&mut self, severity: Severity, what: String) {
        match severity {
            Severity::Error => self.errors += 1,
            Severity::Warning => self.warnings += 1,
            Severity::Info => {}
        }
        if self.findings.len() < LISTED {
            self.findings.push((severity, what));
        }
    }

    /// Neither errors nor warnings.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.wrong() == 0
    }

    /// Errors and warnings.
    #[must_use]
    pub const fn wrong(&self) -> u64 {
        self.errors + self.warnings
    }
}

/// What a repair did.
#[derive(Clone, Debug)]
pub struct Repair {
    /// What was wrong before.
    pub before: Report,
    /// And after it.
    pub after: Report,
}

impl Repair {
    /// Whether less is wrong than before.
    #[must_use]
    pub const fn helped(&self) -> bool {
        self.before.wrong() > self.after.wrong()
    }
}
