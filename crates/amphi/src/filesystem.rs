//! What the command does with the file systems of `volumes`: making one on a device, finding out which one is
//! there, opening it to be mounted. Checks are in `check.rs`. No file system is named here.

mod check;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use amphi_front_fuse::{MountError, MountOptions};
use amphi_ssd::Ssd;
use amphi_trace::Recording;
use amphi_vfs::{AccessTimes, Cred, FileSystem, Ino, PinnedRange, SetAttr};
use amphi_volume::{About, Changes, Error, FormatOptions, Volume};
use amphi_volumes::{Act, Kind};
use anyhow::{Context, Result, anyhow};
use serde_json::{Value, json};

use crate::doors::{self, Doors};

pub use check::{CheckReport, check, repair};

/// Makes a file system on a new device. Its root directory belongs to `owner` (user and group).
///
/// # Errors
/// If the device cannot carry it.
pub fn format(kind: Kind, device: Ssd, options: &FormatOptions, owner: (u32, u32)) -> Result<()> {
    let device = Arc::new(device);
    kind.with_on(&*Arc::clone(&device), Make { device, options, owner })
}

struct Make<'a> {
    device: Arc<Ssd>,
    options: &'a FormatOptions,
    owner: (u32, u32),
}

impl Act<Ssd> for Make<'_> {
    type Out = Result<()>;

    fn on<V: Volume<Ssd>>(self) -> Result<()> {
        let Self { device, options, owner: (uid, gid) } = self;
        V::format(&device, options).context("the file system cannot be made")?;
        if (uid, gid) == (0, 0) {
            return Ok(());
        }
        let fs = V::mount(&device, &amphi_volume::MountOptions::default())?;
        let change = SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
        fs.setattr(Ino::ROOT, &change, &Cred::ROOT)?;
        Ok(fs.unmount()?)
    }
}

/// What is on a device, for people and as JSON; null if it is nothing that this program knows, or damaged.
pub fn describe(device: &Ssd) -> Value {
    Kind::on(device).and_then(|kind| kind.probe(device).ok()).map_or(Value::Null, |about| json!(about))
}

/// What is opened and can be served by a daemon.
pub trait Served: Send + Sync {
    /// Mounts it and starts to serve.
    ///
    /// # Errors
    /// If the kernel or the directory does not allow it.
    fn attach(&self, directory: &Path, options: &MountOptions) -> Result<Doors, MountError>;

    /// What it is, while it is in use.
    fn describe(&self) -> Value;

    /// What it counts and has in memory; null where all that there is to know is what the device counts.
    fn stats(&self) -> Value;

    /// Makes everything durable.
    ///
    /// # Errors
    /// If the device fails.
    fn flush(&self) -> Result<()>;

    /// Tells the device which pages hold nothing: the free runs of at least `shortest` bytes. Returns the
    /// bytes of all of them.
    ///
    /// # Errors
    /// If the device fails, or nothing may be changed.
    fn trim_free(&self, shortest: u64) -> Result<u64>;

    /// What is pinned to the device's window.
    ///
    /// # Errors
    /// If the file system has no pins.
    fn pins(&self) -> Result<Value>;

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
pub fn open(device: Arc<Ssd>, using: &Use) -> Result<Box<dyn Served>> {
    known(&device)?.with_on(&*Arc::clone(&device), Open { device, using })
}

struct Open<'a> {
    device: Arc<Ssd>,
    using: &'a Use,
}

impl Act<Ssd> for Open<'_> {
    type Out = Result<Box<dyn Served>>;

    fn on<V: Volume<Ssd>>(self) -> Self::Out {
        let options = amphi_volume::MountOptions {
            read_only: self.using.read_only,
            access_times: self.using.access_times,
            words: self.using.words.join(","),
            ..amphi_volume::MountOptions::default()
        };
        let fs = Arc::new(V::mount(&self.device, &options)?);
        let recorded = self.using.trace.as_deref().map(|trace| record(&fs, trace)).transpose()?;
        Ok(Box::new(Opened { fs, recorded }))
    }
}

/// Which file system a device holds.
fn known(device: &Ssd) -> Result<Kind> {
    Kind::on(device).ok_or_else(|| {
        anyhow!("the SSD holds no file system that this program knows; make one with: amphi mkfs --force")
    })
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

struct Opened<V> {
    fs: Arc<V>,
    /// The same, recorded.
    recorded: Option<Arc<Recording<V>>>,
}

impl<V: Volume<Ssd>> Served for Opened<V> {
    fn attach(&self, directory: &Path, options: &MountOptions) -> Result<Doors, MountError> {
        match &self.recorded {
            // What is recorded are calls.
            Some(recorded) => doors::open_by_calls(recorded, directory, options),
            None => doors::open(&self.fs, directory, options),
        }
    }

    fn describe(&self) -> Value {
        json!(self.fs.about())
    }

    fn stats(&self) -> Value {
        let stats = self.fs.stats();
        if stats.is_empty() { Value::Null } else { Value::Object(stats) }
    }

    fn flush(&self) -> Result<()> {
        Ok(self.fs.sync()?)
    }

    fn trim_free(&self, shortest: u64) -> Result<u64> {
        match self.fs.discard_free(0..u64::MAX, shortest) {
            Err(amphi_vfs::Error::Unsupported(_)) => Err(only_some::<V>("trimmed")),
            trimmed => Ok(trimmed?),
        }
    }

    fn pins(&self) -> Result<Value> {
        let ranges = match self.fs.pinned_ranges() {
            Err(amphi_vfs::Error::Unsupported(_)) => return Err(only_some::<V>("pinned to this SSD")),
            ranges => ranges?,
        };
        let shown = |range: PinnedRange| json!({ "inode": range.ino.0, "offset": range.offset, "length": range.length, "user": range.uid });
        Ok(ranges.into_iter().map(shown).collect())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let Self { fs, recorded } = *self;
        drop(recorded);
        let fs = Arc::into_inner(fs).ok_or_else(|| anyhow!("the file system is still being served"))?;
        Ok(fs.unmount()?)
    }
}

/// Says that `V` lacks what others have.
fn only_some<V: Volume<Ssd>>(verb: &'static str) -> anyhow::Error {
    Error::unsupported::<Ssd, V>(verb).into()
}

/// Changes an unmounted file system's superblock; what it says then.
///
/// # Errors
/// If there is none that this program knows, or a change is impossible.
pub fn tune(device: &Ssd, changes: &Changes) -> Result<About> {
    known(device)?.with(Tune(device, changes))
}

struct Tune<'a>(&'a Ssd, &'a Changes);

impl Act<Ssd> for Tune<'_> {
    type Out = Result<About>;

    fn on<V: Volume<Ssd>>(self) -> Self::Out {
        Ok(V::tune(self.0, self.1)?)
    }
}

/// Lets an unmounted file system grow to `bytes`, or to all of its device. Returns its size before and now.
///
/// # Errors
/// If there is none that this program knows, or it cannot have that size.
pub fn grow(device: &Ssd, bytes: Option<u64>) -> Result<(u64, u64)> {
    known(device)?.with(Grow(device, bytes))
}

struct Grow<'a>(&'a Ssd, Option<u64>);

impl Act<Ssd> for Grow<'_> {
    type Out = Result<(u64, u64)>;

    fn on<V: Volume<Ssd>>(self) -> Self::Out {
        Ok(V::grow(self.0, self.1)?)
    }
}

/// Reads a UUID as it is usually written, with or without dashes; `random` makes one.
///
/// # Errors
/// A sentence that says what is wrong, for clap to show.
pub fn parse_uuid(text: &str) -> Result<[u8; 16], String> {
    if text != "random" {
        return amphi_volume::parse_uuid(text);
    }
    let mut uuid = [0; 16];
    for half in uuid.as_chunks_mut::<8>().0 {
        *half = amphi_rt::random::u64().to_le_bytes();
    }
    Ok(uuid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_random_uuid_is_another_one_each_time() {
        assert_ne!(parse_uuid("random"), parse_uuid("random"));
        assert!(parse_uuid("rando").is_err());
    }
}
