//! What a check reports, what it has found so far, and why it could not run.

use std::fmt::Display;

use amphi_volume::Checked;
use serde::Serialize;

use super::finding::{Finding, FindingKind};
use crate::format::FormatError;

/// The outcome of a check.
pub type Report = Checked<Finding, Beside>;

/// What only a check of a ByteFS has to say.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Beside {
    /// Log entries of uncommitted operations that recovery dropped.
    pub log_entries_dropped: u64,
    /// Findings beyond the first 100,000, which are counted but not listed.
    pub findings_not_listed: u64,
}

/// What a check has found so far.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub report: Report,
    /// Some page could not be read, so pages that nothing claims may still be in use.
    pub unreadable: bool,
}

impl Findings {
    pub fn add(&mut self, kind: FindingKind) {
        let is_listed = self.report.add(Finding { severity: kind.severity(), kind });
        self.report.own.findings_not_listed += u64::from(!is_listed);
    }

    /// The device refused a page that holds a `structure`.
    pub fn add_unreadable(&mut self, page: u32, structure: &'static str, reason: &impl Display) {
        self.unreadable = true;
        self.add(FindingKind::PageUnreadable { page, structure, reason: reason.to_string() });
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
