//! The file systems by name: making one on a device, finding out which one is there, checking it, opening it to be mounted.
//!
//! A new file system is one more [`Kind`], one more [`Volume`], and one more arm in each function here; nothing else of the command
//! changes.

use std::path::Path;
use std::sync::Arc;

use amphi_front_fuse::{MountError, MountOptions, Session};
use amphi_fs_bytefs::format::FormatError;
use amphi_fs_bytefs::fsck::{self, FsckError, Severity};
use amphi_fs_bytefs::{ByteFs, FormatOptions};
use amphi_ssd::Ssd;
use amphi_vfs::{AccessTimes, Cred, FileSystem, Ino, SetAttr};
use anyhow::{Context, Result, anyhow};
use serde_json::{Value, json};

use crate::progress::CheckBar;

/// The file systems that can be put on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// ByteFS: small updates travel by bytes, large ones by blocks.
    Bytefs,
    /// None: the device alone.
    None,
}

impl Kind {
    /// The name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bytefs => "bytefs",
            Self::None => "none",
        }
    }
}

/// Makes a file system on a new device. Its root directory belongs to `owner` (user and group).
///
/// # Errors
/// If the device cannot carry it.
pub fn format(kind: Kind, device: Ssd, label: &str, owner: (u32, u32)) -> Result<()> {
    match kind {
        Kind::Bytefs => {
            let options = FormatOptions { label: label.to_owned(), ..FormatOptions::default() };
            ByteFs::format(&device, &options).context("the file system cannot be made")?;
            if owner != (0, 0) {
                give_root_to(device, owner)?;
            }
            Ok(())
        }
        Kind::None => Ok(()),
    }
}

fn give_root_to(device: Ssd, (uid, gid): (u32, u32)) -> Result<()> {
    let fs = ByteFs::mount(Arc::new(device), amphi_fs_bytefs::MountOptions::default())?;
    let change = SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
    fs.setattr(Ino::ROOT, &change, &Cred::ROOT)?;
    Ok(fs.unmount()?)
}

/// What is on a device, for people and as JSON; null if it is nothing that this program knows.
pub fn describe(device: &Ssd) -> Value {
    amphi_fs_bytefs::probe(device).map_or(Value::Null, |info| describe_bytefs(&info))
}

fn describe_bytefs(info: &amphi_fs_bytefs::Info) -> Value {
    json!({
        "type": Kind::Bytefs.name(),
        "label": info.label,
        "uuid": shown_uuid(info.uuid),
        "size_bytes": info.bytes,
        "inodes": info.inodes,
        "mounts": info.mounts,
        "clean": info.clean,
    })
}

fn shown_uuid(uuid: [u8; 16]) -> String {
    let mut text = String::new();
    for (index, byte) in uuid.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text += &format!("{byte:02x}");
    }
    text
}

/// A file system that has been opened and can be mounted.
pub trait Volume: Send + Sync {
    /// Mounts it and starts to serve.
    ///
    /// # Errors
    /// If the kernel or the directory does not allow it.
    fn attach(&self, directory: &Path, options: &MountOptions) -> Result<Session, MountError>;

    /// What it is, while it is in use.
    fn describe(&self) -> Value;

    /// Makes everything durable.
    ///
    /// # Errors
    /// If the device fails.
    fn flush(&self) -> Result<()>;

    /// Makes everything durable and closes it. The session has ended.
    ///
    /// # Errors
    /// If the device fails; the next mount then recovers.
    fn finish(self: Box<Self>) -> Result<()>;
}

/// What may be done with a file system that is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// Nothing may be changed.
    pub read_only: bool,
    /// When reading moves access times.
    pub access_times: AccessTimes,
}

/// Opens the file system on a device; a crash before is recovered from here.
///
/// # Errors
/// If there is none that this program knows, or it is damaged.
pub fn open(device: Arc<Ssd>, using: Use) -> Result<Box<dyn Volume>> {
    let Use { read_only, access_times } = using;
    let options =
        amphi_fs_bytefs::MountOptions { read_only, access_times, ..amphi_fs_bytefs::MountOptions::default() };
    match ByteFs::mount(device, options) {
        Ok(fs) => Ok(Box::new(Bytefs(Arc::new(fs)))),
        Err(amphi_fs_bytefs::MountError::Format(FormatError::NotByteFs)) => Err(nothing_known()),
        Err(error) => Err(error.into()),
    }
}

fn nothing_known() -> anyhow::Error {
    anyhow!("the SSD holds no file system that this program knows; make one with: amphi mkfs --force")
}

struct Bytefs(Arc<ByteFs<Ssd>>);

impl Volume for Bytefs {
    fn attach(&self, directory: &Path, options: &MountOptions) -> Result<Session, MountError> {
        amphi_front_fuse::mount(Arc::clone(&self.0), directory, options)
    }

    fn describe(&self) -> Value {
        describe_bytefs(&self.0.info())
    }

    fn flush(&self) -> Result<()> {
        Ok(self.0.sync()?)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let fs = Arc::into_inner(self.0).ok_or_else(|| anyhow!("the file system is still being served"))?;
        Ok(fs.unmount()?)
    }
}

/// What a check found.
pub struct CheckReport {
    /// After a repair, if there was one.
    report: fsck::Report,
    /// Before it.
    repaired: Option<fsck::Report>,
}

/// Checks the file system on an unmounted device.
///
/// # Errors
/// If there is none that this program knows, or the device fails.
pub fn check(device: &Ssd) -> Result<CheckReport> {
    let mut bar = CheckBar::new();
    let outcome = fsck::check(device, &mut |progress| bar.show(progress));
    drop(bar);
    match outcome {
        Ok(report) => Ok(CheckReport { report, repaired: None }),
        Err(FsckError::Format(FormatError::NotByteFs)) => Err(nothing_known()),
        Err(error) => Err(error.into()),
    }
}

/// Checks the file system on an unmounted device and mends what it finds.
///
/// # Errors
/// As [`check`].
pub fn repair(device: &Ssd) -> Result<CheckReport> {
    let mut bar = CheckBar::new();
    let outcome = fsck::repair(device, &mut |progress| bar.show(progress));
    drop(bar);
    match outcome {
        Ok(outcome) => Ok(CheckReport { report: outcome.after, repaired: Some(outcome.before) }),
        Err(FsckError::Format(FormatError::NotByteFs)) => Err(nothing_known()),
        Err(error) => Err(error.into()),
    }
}

impl CheckReport {
    /// Neither errors nor warnings.
    pub fn is_clean(&self) -> bool {
        self.report.is_clean()
    }

    /// Whether something was wrong and less is now.
    pub fn was_repaired(&self) -> bool {
        let wrong = |report: &fsck::Report| report.errors + report.warnings;
        self.repaired.as_ref().is_some_and(|before| wrong(before) > wrong(&self.report))
    }

    /// The report as one stable JSON object.
    pub fn json(&self, image: &Path) -> Value {
        let mut object = json!({
            "image": image.display().to_string(),
            "filesystem": Kind::Bytefs.name(),
            "clean": self.is_clean(),
            "report": self.report,
        });
        if let Some(before) = &self.repaired {
            object["repaired"] = json!(before.findings);
        }
        object
    }

    /// The report for people: what was found, then one line that sums it up.
    pub fn print(&self, image: &Path) {
        let report = &self.report;
        if self.was_repaired() {
            for finding in self.repaired.iter().flat_map(|before| &before.findings) {
                print_finding(finding);
            }
            println!("{}: repaired the above", image.display());
        }
        for finding in &report.findings {
            print_finding(finding);
        }
        let used = report.pages_used as f64 / report.pages.max(1) as f64 * 100.0;
        let outcome = match (report.errors, report.warnings) {
            (0, 0) => "clean".to_owned(),
            (errors, warnings) => format!("{errors} errors, {warnings} warnings"),
        };
        println!(
            "{}: {outcome}; {} files, {} directories, {} symlinks, {used:.1} % of {} pages used",
            image.display(),
            report.files,
            report.directories,
            report.symlinks,
            report.pages
        );
    }
}

fn print_finding(finding: &fsck::Finding) {
    let severity = match finding.severity {
        Severity::Info => "note",
        Severity::Warning => "warning",
        Severity::Error => "error",
    };
    println!("{severity}: {finding}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_shown_in_the_usual_groups() {
        let uuid = std::array::from_fn(|index| index as u8 + 0xa0);
        assert_eq!(shown_uuid(uuid), "a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf");
    }
}
