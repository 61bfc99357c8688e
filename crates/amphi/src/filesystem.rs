//! The file systems by name: making one on a device, finding out which one is there, checking it, opening it to be mounted.
//!
//! A new file system is one more [`Kind`], one more [`Volume`], and one more arm in each function here; nothing else of the command
//! changes.

use std::path::Path;
use std::sync::Arc;

use amphi_front_fuse::{MountError, MountOptions, Session};
use amphi_fs_bytefs::format::FormatError;
use amphi_fs_bytefs::fsck::{self, FsckError, Severity};
use amphi_fs_bytefs::tune::{self, Changes};
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

/// What a new file system is to be like.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// Its name.
    pub label: String,
    /// Bytes, if not all of the device.
    pub size: Option<u64>,
    /// Bytes of its data journal, if not as many as usual.
    pub journal: Option<u64>,
}

/// Makes a file system on a new device. Its root directory belongs to `owner` (user and group).
///
/// # Errors
/// If the device cannot carry it.
pub fn format(kind: Kind, device: Ssd, wishes: &Wishes, owner: (u32, u32)) -> Result<()> {
    match kind {
        Kind::Bytefs => {
            let pages = |bytes: u64| bytes / amphi_fs_bytefs::format::PAGE as u64;
            let options = FormatOptions {
                label: wishes.label.clone(),
                pages: wishes.size.map(pages),
                journal_pages: wishes.journal.map(|bytes| u32::try_from(pages(bytes)).unwrap_or(u32::MAX)),
                ..FormatOptions::default()
            };
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
        "size_max_bytes": info.bytes_max,
        "journal_bytes": info.journal_bytes,
        "mount_options": info.options,
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

    /// Tells the device which pages hold nothing: the free runs of at least `shortest` bytes. Returns the bytes of all of them.
    ///
    /// # Errors
    /// If the device fails, or nothing may be changed.
    fn trim_free(&self, shortest: u64) -> Result<u64>;

    /// Makes everything durable and closes it. The session has ended.
    ///
    /// # Errors
    /// If the device fails; the next mount then recovers.
    fn finish(self: Box<Self>) -> Result<()>;
}

/// What may be done with a file system that is opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// Nothing may be changed.
    pub read_only: bool,
    /// When reading moves access times.
    pub access_times: AccessTimes,
    /// Mount options that are the file system's own business; what they do not say, its superblock says.
    pub words: Vec<String>,
}

/// Opens the file system on a device; a crash before is recovered from here.
///
/// # Errors
/// If there is none that this program knows, or it is damaged.
pub fn open(device: Arc<Ssd>, using: &Use) -> Result<Box<dyn Volume>> {
    let mounted = ByteFs::default_options(&*device).and_then(|mut options| {
        options.read_only = using.read_only;
        options.access_times = using.access_times;
        options.set_all(&using.words.join(",")).map_err(amphi_fs_bytefs::MountError::Options)?;
        ByteFs::mount(device, options)
    });
    match mounted {
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

    fn trim_free(&self, shortest: u64) -> Result<u64> {
        Ok(self.0.trim_free(shortest)?)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let fs = Arc::into_inner(self.0).ok_or_else(|| anyhow!("the file system is still being served"))?;
        Ok(fs.unmount()?)
    }
}

/// Changes an unmounted file system's superblock; what it says then.
///
/// # Errors
/// If there is none that this program knows, or a change is impossible.
pub fn tune(device: &Ssd, changes: &Changes) -> Result<Value> {
    match tune::tune(device, changes) {
        Ok(info) => Ok(describe_bytefs(&info)),
        Err(amphi_fs_bytefs::MountError::Format(FormatError::NotByteFs)) => Err(nothing_known()),
        Err(error) => Err(error.into()),
    }
}

/// Lets an unmounted file system grow to `bytes`, or to all of its device. Returns its size before and now.
///
/// # Errors
/// If there is none that this program knows, or it cannot have that size.
pub fn grow(device: &Ssd, bytes: Option<u64>) -> Result<(u64, u64)> {
    let pages = bytes.map(|bytes| bytes / amphi_fs_bytefs::format::PAGE as u64);
    match tune::grow(device, pages) {
        Ok(grown) => Ok((grown.before, grown.after)),
        Err(amphi_fs_bytefs::MountError::Format(FormatError::NotByteFs)) => Err(nothing_known()),
        Err(error) => Err(error.into()),
    }
}

/// Reads a UUID as it is usually written, with or without dashes; `random` makes one.
///
/// # Errors
/// A sentence that says what is wrong, for clap to show.
pub fn parse_uuid(text: &str) -> Result<[u8; 16], String> {
    let mut uuid = [0; 16];
    if text == "random" {
        for half in uuid.as_chunks_mut::<8>().0 {
            *half = amphi_rt::random::u64().to_le_bytes();
        }
        return Ok(uuid);
    }
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b'-').collect();
    let number = std::str::from_utf8(&digits).ok().filter(|digits| digits.len() == 32);
    match number.map(|digits| u128::from_str_radix(digits, 16)) {
        Some(Ok(number)) => Ok(number.to_be_bytes()),
        _ => Err(format!("`{text}` is no UUID; write 32 hexadecimal digits, or random")),
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
        assert_eq!(parse_uuid(&shown_uuid(uuid)), Ok(uuid));
        assert_ne!(parse_uuid("random"), parse_uuid("random"));
        for bad in ["", "a0", "a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeag", "+0a1a2a3-a4a5-a6a7-a8a9-aaabacadaea"] {
            assert!(parse_uuid(bad).is_err(), "{bad}");
        }
    }
}
