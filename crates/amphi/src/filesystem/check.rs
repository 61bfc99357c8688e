//! Checking and repairing whichever file system a device holds, and one report for all of them.

use std::path::Path;
use std::sync::Arc;

use amphi_fs_bytefs::fsck::{self, FsckError, Severity};
use amphi_fs_ext4like::{Ext4Like, MountOptions};
use amphi_fs_romefs::RomeFs;
use amphi_ssd::Ssd;
use anyhow::Result;
use serde_json::{Value, json};

use super::{FormatError, Kind, known, nothing_known};
use crate::progress::CheckBar;

/// What a check found.
pub struct CheckReport {
    kind: Kind,
    /// After a repair, if there was one.
    now: Summary,
    /// Before it.
    before: Option<Summary>,
}

/// A file system's own report, in what all have in common.
struct Summary {
    errors: u64,
    warnings: u64,
    /// Severity and sentence of each finding.
    findings: Vec<(&'static str, String)>,
    /// Files, directories, symlinks.
    counts: [u64; 3],
    pages: u64,
    pages_used: u64,
    /// All of it, for JSON.
    report: Value,
}

impl Summary {
    fn of_bytefs(report: &fsck::Report) -> Self {
        let word = |severity| match severity {
            Severity::Info => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        Self {
            errors: report.errors,
            warnings: report.warnings,
            findings: report.findings.iter().map(|found| (word(found.severity), found.to_string())).collect(),
            counts: [report.files, report.directories, report.symlinks],
            pages: report.pages,
            pages_used: report.pages_used,
            report: json!(report),
        }
    }

    fn of_ext4like(report: &amphi_fs_ext4like::fsck::Report) -> Self {
        use amphi_fs_ext4like::fsck::Severity as Ext4Severity;
        let word = |severity| match severity {
            Ext4Severity::Info => "note",
            Ext4Severity::Warning => "warning",
            Ext4Severity::Error => "error",
        };
        Self {
            errors: report.errors,
            warnings: report.warnings,
            findings: report
                .findings
                .iter()
                .map(|found| (word(found.severity()), found.to_string()))
                .collect(),
            counts: [report.files, report.directories, report.symlinks],
            pages: report.pages,
            pages_used: report.pages_used,
            report: json!(report),
        }
    }

    fn of_romefs(report: &amphi_fs_romefs::fsck::Report) -> Self {
        use amphi_fs_romefs::fsck::Severity as RomeSeverity;
        let word = |severity| match severity {
            RomeSeverity::Info => "note",
            RomeSeverity::Warning => "warning",
            RomeSeverity::Error => "error",
        };
        let count =
            |severity| report.findings.iter().filter(|found| found.severity() == severity).count() as u64;
        Self {
            errors: count(RomeSeverity::Error),
            warnings: count(RomeSeverity::Warning),
            findings: report
                .findings
                .iter()
                .map(|found| (word(found.severity()), found.to_string()))
                .collect(),
            counts: [report.files, report.directories, report.symlinks],
            pages: report.block_pages,
            pages_used: report.block_pages_used,
            report: json!(report),
        }
    }

    const fn wrong(&self) -> u64 {
        self.errors + self.warnings
    }

    fn print_findings(&self) {
        for (severity, finding) in &self.findings {
            println!("{severity}: {finding}");
        }
    }
}

fn bytefs_error(error: FsckError) -> anyhow::Error {
    match error {
        FsckError::Format(FormatError::NotByteFs) => nothing_known(),
        error => error.into(),
    }
}

/// Checks the file system on an unmounted device.
///
/// # Errors
/// If there is none that this program knows, or the device fails.
pub fn check(device: &Arc<Ssd>) -> Result<CheckReport> {
    match known(device) {
        Some(Kind::Ext4like) => {
            let now = Summary::of_ext4like(&amphi_fs_ext4like::fsck::check(device)?);
            return Ok(CheckReport { kind: Kind::Ext4like, now, before: None });
        }
        Some(Kind::Romefs) => {
            let now = Summary::of_romefs(&amphi_fs_romefs::fsck::check(device)?);
            return Ok(CheckReport { kind: Kind::Romefs, now, before: None });
        }
        _ => {}
    }
    let mut bar = CheckBar::new();
    let outcome = fsck::check(&**device, &mut |progress| bar.show(progress));
    drop(bar);
    let now = Summary::of_bytefs(&outcome.map_err(bytefs_error)?);
    Ok(CheckReport { kind: Kind::Bytefs, now, before: None })
}

/// Checks the file system on an unmounted device and mends what it finds. Of an ext4-like one that is what mounting mends: its journal is replayed
/// and orphans are deleted, if nothing else is wrong. So it is of a RomeFS.
///
/// # Errors
/// As [`check`].
pub fn repair(device: &Arc<Ssd>) -> Result<CheckReport> {
    if known(device) == Some(Kind::Ext4like) {
        let found = amphi_fs_ext4like::fsck::check(device)?;
        if found.is_clean() && !found.cleanly_unmounted {
            Ext4Like::mount(Arc::clone(device), MountOptions::default())?.unmount()?;
            return check(device);
        }
        return Ok(CheckReport { kind: Kind::Ext4like, now: Summary::of_ext4like(&found), before: None });
    }
    if known(device) == Some(Kind::Romefs) {
        let found = amphi_fs_romefs::fsck::check(device)?;
        if found.is_clean() && !found.cleanly_unmounted {
            RomeFs::mount(device, amphi_fs_romefs::MountOptions::default())?.unmount()?;
        }
        return check(device);
    }
    let mut bar = CheckBar::new();
    let outcome = fsck::repair(&**device, &mut |progress| bar.show(progress));
    drop(bar);
    let outcome = outcome.map_err(bytefs_error)?;
    let (now, before) = (Summary::of_bytefs(&outcome.after), Summary::of_bytefs(&outcome.before));
    Ok(CheckReport { kind: Kind::Bytefs, now, before: Some(before) })
}

impl CheckReport {
    /// Neither errors nor warnings.
    pub const fn is_clean(&self) -> bool {
        self.now.wrong() == 0
    }

    /// Whether something was wrong and less is now.
    pub fn was_repaired(&self) -> bool {
        self.before.as_ref().is_some_and(|before| before.wrong() > self.now.wrong())
    }

    /// The report as one stable JSON object.
    pub fn json(&self, image: &Path) -> Value {
        let mut object = json!({
            "image": image.display().to_string(),
            "filesystem": self.kind.name(),
            "clean": self.is_clean(),
            "report": self.now.report,
        });
        if let Some(before) = &self.before {
            object["repaired"] = before.report["findings"].clone();
        }
        object
    }

    /// The report for people: what was found, then one line that sums it up.
    pub fn print(&self, image: &Path) {
        if self.was_repaired() {
            if let Some(before) = &self.before {
                before.print_findings();
            }
            println!("{}: repaired the above", image.display());
        }
        self.now.print_findings();
        let Summary { errors, warnings, counts: [files, directories, symlinks], pages, pages_used, .. } =
            &self.now;
        let used = *pages_used as f64 / (*pages).max(1) as f64 * 100.0;
        let outcome = match (errors, warnings) {
            (0, 0) => "clean".to_owned(),
            (errors, warnings) => format!("{errors} errors, {warnings} warnings"),
        };
        println!(
            "{}: {outcome}; {files} files, {directories} directories, {symlinks} symlinks, {used:.1} % of {pages} pages used",
            image.display(),
        );
    }
}
