//! The ext4-like file system as the command uses it.

use std::path::Path;
use std::sync::Arc;

use amphi_front_fuse::{MountError, MountOptions};
use amphi_fs_ext4like::{Ext4Like, FormatOptions, Info};
use amphi_ssd::Ssd;
use amphi_vfs::FileSystem;
use anyhow::{Context, Result, anyhow, bail};
use serde_json::{Value, json};

use crate::doors::{self, Doors};

use super::{Kind, Use, Volume, Wishes, give_root, shown_uuid};

/// Makes one on a new device. Its root directory belongs to `owner`.
///
/// # Errors
/// If the device cannot carry it.
pub fn format(device: Ssd, wishes: &Wishes, owner: (u32, u32)) -> Result<()> {
    let blocks = |bytes: u64| bytes / amphi_fs_ext4like::format::BLOCK as u64;
    let options = FormatOptions {
        label: wishes.label.clone(),
        inodes: wishes.inodes,
        blocks: wishes.size.map(blocks),
        journal_blocks: wishes.journal.map(|bytes| u32::try_from(blocks(bytes)).unwrap_or(u32::MAX)),
    };
    Ext4Like::format(&device, &options).context("the file system cannot be made")?;
    if owner != (0, 0) {
        let fs = Ext4Like::mount(Arc::new(device), amphi_fs_ext4like::MountOptions::default())?;
        give_root(&fs, owner)?;
        fs.unmount()?;
    }
    Ok(())
}

/// What is on a device, for people and as JSON.
pub fn describe(info: &Info) -> Value {
    json!({
        "type": Kind::Ext4like.name(),
        "label": info.label,
        "uuid": shown_uuid(info.uuid),
        "size_bytes": info.bytes,
        "size_max_bytes": info.bytes,
        "journal_bytes": info.journal_bytes,
        "mount_options": "",
        "inodes": info.inodes,
        "mounts": info.mounts,
        "clean": info.clean,
    })
}

/// Opens the one on a device; its journal is replayed.
///
/// # Errors
/// If it is damaged, or an option is unknown.
pub fn open(device: Arc<Ssd>, using: &Use) -> Result<Box<dyn Volume>> {
    let mut options = amphi_fs_ext4like::MountOptions {
        read_only: using.read_only,
        access_times: using.access_times,
        ..amphi_fs_ext4like::MountOptions::default()
    };
    options.set_all(&using.words.join(",")).map_err(amphi_fs_ext4like::MountError::Options)?;
    Ok(Box::new(Opened(Arc::new(Ext4Like::mount(device, options)?))))
}

struct Opened(Arc<Ext4Like<Ssd>>);

impl Volume for Opened {
    fn attach(&self, directory: &Path, options: &MountOptions) -> Result<Doors, MountError> {
        doors::open(&self.0, directory, options)
    }

    fn describe(&self) -> Value {
        describe(&self.0.info())
    }

    fn flush(&self) -> Result<()> {
        Ok(self.0.sync()?)
    }

    fn trim_free(&self, _: u64) -> Result<u64> {
        bail!("the ext4-like file system does not trim; only ByteFS does")
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let fs = Arc::into_inner(self.0).ok_or_else(|| anyhow!("the file system is still being served"))?;
        Ok(fs.unmount()?)
    }
}
