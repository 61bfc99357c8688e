//! RomeFS as the command uses it.

use std::path::Path;
use std::sync::Arc;

use amphi_front_fuse::{MountError, MountOptions};
use amphi_fs_romefs::format::FormatError;
use amphi_fs_romefs::{FormatOptions, Info, MountError as RomeError, RomeFs};
use amphi_ssd::Ssd;
use amphi_trace::Recording;
use amphi_vfs::FileSystem;
use anyhow::{Context, Result, anyhow, bail};
use serde_json::{Value, json};

use crate::doors::{self, Doors};

use super::{Kind, Use, Volume, Wishes, give_root, record, shown_uuid};

/// Makes one on a new device. Its root directory belongs to `owner`.
///
/// # Errors
/// If the device cannot carry it.
pub fn format(device: Ssd, wishes: &Wishes, owner: (u32, u32)) -> Result<()> {
    if wishes.size.is_some() {
        bail!("a RomeFS takes the whole SSD; leave --fs-size away");
    }
    let mut options =
        FormatOptions { label: wishes.label.clone(), inodes: wishes.inodes, ..FormatOptions::default() };
    options.journal_bytes = wishes.journal;
    options.block_bytes = wishes.threshold.unwrap_or(options.block_bytes);
    let device = Arc::new(device);
    RomeFs::format(&device, &options).context("the file system cannot be made")?;
    if owner != (0, 0) {
        let fs = RomeFs::mount(&device, amphi_fs_romefs::MountOptions::default())?;
        give_root(&fs, owner)?;
        fs.unmount()?;
    }
    Ok(())
}

/// Whether a device holds one, damaged or not.
pub fn is_on(device: &Ssd) -> bool {
    !matches!(
        amphi_fs_romefs::probe(device),
        Err(RomeError::Format(FormatError::NotRomeFs) | RomeError::Device(_))
    )
}

/// What is on a device, for people and as JSON.
pub fn describe(info: &Info) -> Value {
    json!({
        "type": Kind::Romefs.name(),
        "label": info.label,
        "uuid": shown_uuid(info.uuid),
        "size_bytes": info.block_zone_bytes,
        "size_max_bytes": info.block_zone_bytes,
        "memory_zone_bytes": info.memory_zone_bytes,
        "log_bytes": info.log_bytes,
        "threshold_bytes": info.threshold,
        "journal_bytes": info.journal_bytes,
        "mount_options": info.options,
        "inodes": info.inodes,
        "mounts": info.mounts,
        "clean": info.clean,
    })
}

/// Opens the one on a device; it is recovered.
///
/// # Errors
/// If it is damaged, or an option is unknown.
pub fn open(device: Arc<Ssd>, using: &Use) -> Result<Box<dyn Volume>> {
    let mut options = amphi_fs_romefs::MountOptions {
        read_only: using.read_only,
        access_times: using.access_times,
        ..amphi_fs_romefs::MountOptions::default()
    };
    options.set_all(&using.words.join(",")).map_err(RomeError::Options)?;
    let fs = Arc::new(RomeFs::mount(&device, options)?);
    let recorded = using.trace.as_deref().map(|trace| record(&fs, trace)).transpose()?;
    Ok(Box::new(Opened { fs, recorded }))
}

struct Opened {
    fs: Arc<RomeFs<Ssd>>,
    /// The same, recorded.
    recorded: Option<Arc<Recording<RomeFs<Ssd>>>>,
}

impl Volume for Opened {
    fn attach(&self, directory: &Path, options: &MountOptions) -> Result<Doors, MountError> {
        match &self.recorded {
            Some(recorded) => doors::open(recorded, directory, options),
            None => doors::open(&self.fs, directory, options),
        }
    }

    fn describe(&self) -> Value {
        describe(&self.fs.info())
    }

    fn flush(&self) -> Result<()> {
        Ok(self.fs.sync()?)
    }

    fn trim_free(&self, shortest: u64) -> Result<u64> {
        Ok(self.fs.discard_free(0..u64::MAX, shortest)?)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let Self { fs, recorded } = *self;
        drop(recorded);
        let fs = Arc::into_inner(fs).ok_or_else(|| anyhow!("the file system is still being served"))?;
        Ok(fs.unmount()?)
    }
}
