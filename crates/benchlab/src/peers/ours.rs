//! Ours on emulated SSDs without delays: ByteFS in this process and mounted by a daemon of its own, and any
//! other that needs a memory area in this process.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use amphi_fs_bytefs::{ByteFs, FormatOptions, MountOptions};
use amphi_ssd::{Firmware, OpenOptions, Profile, Ssd};
use amphi_vfs::FileSystem;
use amphi_volume::Volume;
use amphi_volumes::{Act, Kind};
use anyhow::{Context, Result, bail};

use super::daemon::Daemon;
use super::workspace::{Workspace, text};
use crate::library::Library;

/// Bytes of each SSD. Memory is used as it is written.
const SSD_BYTES: u64 = 4 << 30;
/// Bytes of the memory area: more than an operation's batches write, so that no logs are written back.
const MEMORY_BYTES: u64 = 1 << 30;

/// ByteFS as a library.
///
/// # Errors
/// It cannot be made.
pub fn library() -> Result<Library> {
    let device = Arc::new(Ssd::in_memory(&Profile::named("free")?, SSD_BYTES));
    ByteFs::format(&*device, &FormatOptions::default())?;
    Ok(Library::new(Arc::new(ByteFs::mount(device, MountOptions::default())?)))
}

/// A file system that needs a memory area, as a library, made and mounted as usual.
///
/// # Errors
/// It cannot be made.
pub fn library_of(kind: Kind) -> Result<Library> {
    let mut profile = Profile::named("free")?;
    profile.firmware.kind = Firmware::Memory;
    profile.firmware.memory_bytes = MEMORY_BYTES;
    let device = Arc::new(Ssd::try_in_memory(&profile, SSD_BYTES, &OpenOptions::default())?);
    Ok(Library::new(kind.with(Made(&device))?))
}

/// Makes and mounts.
struct Made<'a>(&'a Arc<Ssd>);

impl Act<Ssd> for Made<'_> {
    type Out = amphi_volume::Result<Arc<dyn FileSystem>>;

    fn on<V: Volume<Ssd>>(self) -> Self::Out {
        V::format(self.0, &amphi_volume::FormatOptions::default())?;
        Ok(Arc::new(V::mount(self.0, &amphi_volume::MountOptions::default())?))
    }
}

/// Makes an image in memory, ByteFS's unless the words `mkfs` say other, and mounts it with the program
/// `amphi` and the mount options `option`; `name` tells it from others of the run.
///
/// # Errors
/// What the program complains of.
pub fn mounted(
    workspace: &Workspace,
    amphi: &Path,
    name: &str,
    mkfs: &[&str],
    option: &str,
) -> Result<Daemon> {
    let directory = workspace.directory(name)?;
    let image = workspace.path(&format!("{name}.img"));
    let made = Command::new(amphi)
        .args(["mkfs", "--profile", "free", "--size", &SSD_BYTES.to_string()])
        .args(mkfs)
        .arg(&image)
        .output()
        .context("amphi cannot be run")?;
    if !made.status.success() {
        bail!("{}", String::from_utf8_lossy(&made.stderr).trim());
    }
    let mount = ["mount", "--free", "--foreground", "-o", option, text(&image)?, text(&directory)?]
        .map(str::to_owned);
    Daemon::new(amphi, &mount.each_ref().map(String::as_str), directory)
}
