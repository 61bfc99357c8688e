//! Checking and repairing whichever file system a device holds, and one report for all of them.

use std::path::Path;
use std::sync::Arc;

use amphi_ssd::Ssd;
use amphi_volume::{Repair, Report, Severity, Volume};
use amphi_volumes::{Act, Kind};
use anyhow::Result;
use serde_json::{Value, json};

use super::known;
use crate::progress::CheckBar;

/// What a check found.
pub struct CheckReport {
    kind: Kind,
    /// After a repair, if there was one.
    now: Report,
    /// Before it.
    before: Option<Report>,
}

/// Checks the file system on an unmounted device.
///
/// # Errors
/// If there is none that this program knows, or the device fails.
pub fn check(device: &Arc<Ssd>) -> Result<CheckReport> {
    let kind = known(device)?;
    let now = kind.with(Check(device))?;
    Ok(CheckReport { kind, now, before: None })
}

struct Check<'a>(&'a Arc<Ssd>);

impl Act<Ssd> for Check<'_> {
    type Out = amphi_volume::Result<Report>;

    fn on<V: Volume<Ssd>>(self) -> Self::Out {
        let mut bar = CheckBar::new();
        V::check(self.0, &mut |progress| bar.show(progress))
    }
}

/// Checks the file system on an unmounted device and mends what it finds.
///
/// # Errors
/// As [`check`].
pub fn repair(device: &Arc<Ssd>) -> Result<CheckReport> {
    let kind = known(device)?;
    let Repair { before, after } = kind.with_on(&*Arc::clone(device), Mend(device))?;
    Ok(CheckReport { kind, now: after, before: Some(before) })
}

struct Mend<'a>(&'a Arc<Ssd>);

impl Act<Ssd> for Mend<'_> {
    type Out = amphi_volume::Result<Repair>;

    fn on<V: Volume<Ssd>>(self) -> Self::Out {
        let mut bar = CheckBar::new();
        V::repair(self.0, &mut |progress| bar.show(progress))
    }
}

impl CheckReport {
    /// Neither errors nor warnings.
    pub const fn is_clean(&self) -> bool {
        self.now.is_clean()
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
            "report": self.now.own,
        });
        if let Some(before) = &self.before {
            object["repaired"] = before.own["findings"].clone();
        }
        object
    }

    /// The report for people: what was found, then one line that sums it up.
    pub fn print(&self, image: &Path) {
        if self.was_repaired() {
            if let Some(before) = &self.before {
                print_findings(before);
            }
            println!("{}: repaired the above", image.display());
        }
        print_findings(&self.now);
        let Report { errors, warnings, files, directories, symlinks, pages, pages_used, .. } = &self.now;
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

fn print_findings(report: &Report) {
    for (severity, finding) in &report.findings {
        println!("{}: {finding}", Severity::word(*severity));
    }
}
