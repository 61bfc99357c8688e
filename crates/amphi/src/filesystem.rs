//! The file systems by name: making one on a device, finding out which one is there, checking it, opening it to be mounted.
//!
//! A new file system is one more [`Kind`], one more [`Volume`], and one more arm in each function here; nothing else of the command
//! changes. Checks are in `check.rs`.

mod check;
mod ext4like;
mod romefs;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use amphi_front_fuse::{MountError, MountOptions};
use amphi_fs_bytefs::format::FormatError;
use amphi_fs_bytefs::tune::{self, Changes};
use amphi_fs_bytefs::{ByteFs, FormatOptions};
use amphi_ssd::Ssd;
use amphi_trace::Recording;
use amphi_vfs::{AccessTimes, Cred, FileSystem, Ino, SetAttr};
use anyhow::{Context, Result, anyhow};
use serde_json::{Value, json};

use crate::doors::{self, Doors};

pub use check::{CheckReport, check, repair};

/// The file systems that can be put on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// ByteFS: small updates travel by bytes, large ones by blocks.
    Bytefs,
    /// A block-only journaling file system of ext4's kind: the baseline.
    Ext4like,
    /// RomeFS: large aligned parts of a write travel by blocks, the rest by bytes, at the same time.
    Romefs,
    /// None: the device alone.
    None,
}

impl Kind {
    /// The name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bytefs => "bytefs",
            Self::Ext4like => "ext4like",
            Self::Romefs => "romefs",
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
    /// Inodes, if not as many as usual.
    pub inodes: Option<u32>,
    /// Bytes from which on an aligned part of a write goes by blocks, if not as many as usual.
    pub threshold: Option<u64>,
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
                inodes: wishes.inodes,
                pages: wishes.size.map(pages),
                journal_pages: wishes.journal.map(|bytes| u32::try_from(pages(bytes)).unwrap_or(u32::MAX)),
            };
            ByteFs::format(&device, &options).context("the file system cannot be made")?;
            if owner != (0, 0) {
                give_root_to(device, owner)?;
            }
            Ok(())
        }
        Kind::Ext4like => ext4like::format(device, wishes, owner),
        Kind::Romefs => romefs::format(device, wishes, owner),
        Kind::None => Ok(()),
    }
}

fn give_root_to(device: Ssd, (uid, gid): (u32, u32)) -> Result<()> {
    let fs = ByteFs::mount(Arc::new(device), amphi_fs_bytefs::MountOptions::default())?;
    give_root(&fs, (uid, gid))?;
    Ok(fs.unmount()?)
}

fn give_root(fs: &dyn FileSystem, (uid, gid): (u32, u32)) -> Result<()> {
    let change = SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
    fs.setattr(Ino::ROOT, &change, &Cred::ROOT)?;
    Ok(())
}

/// What is on a device, for people and as JSON; null if it is nothing that this program knows.
pub fn describe(device: &Ssd) -> Value {
    amphi_fs_bytefs::probe(device)
        .map(|info| describe_bytefs(&info))
        .or_else(|_| amphi_fs_ext4like::probe(device).map(|info| ext4like::describe(&info)))
        .or_else(|_| amphi_fs_romefs::probe(device).map(|info| romefs::describe(&info)))
        .unwrap_or(Value::Null)
}

/// Which file system is on a device, damaged or not.
fn known(device: &Ssd) -> Option<Kind> {
    use amphi_fs_ext4like::MountError as Ext4Error;
    use amphi_fs_ext4like::format::FormatError as Ext4Format;
    if romefs::is_on(device) {
        return Some(Kind::Romefs);
    }
    match amphi_fs_bytefs::probe(device) {
        Err(amphi_fs_bytefs::MountError::Format(FormatError::NotByteFs)) => {}
        _ => return Some(Kind::Bytefs),
    }
    let none = matches!(amphi_fs_ext4like::probe(device), Err(Ext4Error::Format(Ext4Format::NotExt4Like)));
    (!none).then_some(Kind::Ext4like)
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
    fn attach(&self, directory: &Path, options: &MountOptions) -> Result<Doors, MountError>;

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
    /// Where a trace of everything that is done goes.
    pub trace: Option<PathBuf>,
}

/// Opens the file system on a device; a crash before is recovered from here.
///
/// # Errors
/// If there is none that this program knows, or it is damaged.
pub fn open(device: Arc<Ssd>, using: &Use) -> Result<Box<dyn Volume>> {
    match known(&device) {
        Some(Kind::Ext4like) => return ext4like::open(device, using),
        Some(Kind::Romefs) => return romefs::open(device, using),
        _ => {}
    }
    let mounted = ByteFs::default_options(&*device).and_then(|mut options| {
        options.read_only = using.read_only;
        options.access_times = using.access_times;
        options.set_all(&using.words.join(",")).map_err(amphi_fs_bytefs::MountError::Options)?;
        ByteFs::mount(device, options)
    });
    match mounted {
        Ok(fs) => {
            let fs = Arc::new(fs);
            let recorded = using.trace.as_deref().map(|trace| record(&fs, trace)).transpose()?;
            Ok(Box::new(Bytefs { fs, recorded }))
        }
        Err(amphi_fs_bytefs::MountError::Format(FormatError::NotByteFs)) => Err(nothing_known()),
        Err(error) => Err(error.into()),
    }
}

fn only_bytefs(device: &Ssd, what: &str) -> anyhow::Error {
    match known(device) {
        Some(Kind::Ext4like) => {
            anyhow!("the SSD holds an ext4-like file system, which cannot be {what}; only ByteFS can")
        }
        Some(Kind::Romefs) => anyhow!("the SSD holds a RomeFS, which cannot be {what}; only ByteFS can"),
        _ => nothing_known(),
    }
}

fn nothing_known() -> anyhow::Error {
    anyhow!("the SSD holds no file system that this program knows; make one with: amphi mkfs --force")
}

/// Writes down what is done to a file system, line by line, so that a killed daemon leaves what it has.
fn record<F: FileSystem>(fs: &Arc<F>, trace: &Path) -> Result<Arc<Recording<F>>> {
    let mut file = std::fs::File::create(trace)
        .with_context(|| format!("the trace {} cannot be written", trace.display()))?;
    let shown = trace.display().to_string();
    let mut failed = false;
    let sink = Box::new(move |line: &str| {
        if let Err(error) = file.write_all(format!("{line}\n").as_bytes())
            && !std::mem::replace(&mut failed, true)
        {
            eprintln!("amphi: the trace {shown} is not complete: {error}");
        }
    });
    Ok(Arc::new(Recording::begin(Arc::clone(fs), sink)?))
}

struct Bytefs {
    fs: Arc<ByteFs<Ssd>>,
    /// The same, recorded.
    recorded: Option<Arc<Recording<ByteFs<Ssd>>>>,
}

impl Volume for Bytefs {
    fn attach(&self, directory: &Path, options: &MountOptions) -> Result<Doors, MountError> {
        match &self.recorded {
            Some(recorded) => doors::open(recorded, directory, options),
            None => doors::open(&self.fs, directory, options),
        }
    }

    fn describe(&self) -> Value {
        describe_bytefs(&self.fs.info())
    }

    fn flush(&self) -> Result<()> {
        Ok(self.fs.sync()?)
    }

    fn trim_free(&self, shortest: u64) -> Result<u64> {
        Ok(self.fs.trim_free(shortest)?)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let Self { fs, recorded } = *self;
        drop(recorded);
        let fs = Arc::into_inner(fs).ok_or_else(|| anyhow!("the file system is still being served"))?;
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
        Err(amphi_fs_bytefs::MountError::Format(FormatError::NotByteFs)) => Err(only_bytefs(device, "tuned")),
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
        Err(amphi_fs_bytefs::MountError::Format(FormatError::NotByteFs)) => {
            Err(only_bytefs(device, "resized"))
        }
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
