//! `amphi export`: the emulated SSD's block side as a file, from which `losetup` makes a disk for the
//! kernel's own file systems.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use amphi_device::BlockPort;
use amphi_front_export::{FILE_NAME, Recorded};
use amphi_front_fuse::{MountError, MountOptions};
use amphi_ssd::Ssd;
use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::doors::Doors;
use crate::filesystem::{self, Served, Use};
use crate::mount::{self, Serving};

/// Exports the SSD's block side as the file DIRECTORY/ssd.
///
/// With `losetup` it becomes a disk on which the kernel's ext4, XFS and Btrfs run. Flush, FUA and discard
/// reach the SSD. `amphi stats`, `power-cut` and `umount` work on an export as on a mount; detach the loop
/// device before `umount`. `-o record=/FILE` writes down every request that reaches the SSD.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  amphi mkfs ssd.img --fs none && amphi export ssd.img /mnt
  losetup --find --show --direct-io=on --sector-size 4096 /mnt/ssd       prints, say, /dev/loop0
  mkfs.ext4 /dev/loop0 && mount /dev/loop0 /media
  amphi stats /mnt --watch
  umount /media && losetup --detach /dev/loop0 && amphi umount /mnt")]
pub struct Options {
    /// The image.
    image: PathBuf,
    /// The directory.
    directory: PathBuf,
    #[command(flatten)]
    serving: Serving,
}

pub fn run(options: &Options) -> Result<()> {
    let Options { image, directory, serving } = options;
    serving.without_range()?;
    if serving.is_in_background(image)? {
        let file = directory.join(FILE_NAME);
        println!("{} is exported as {}", mount::existing_image(image)?.display(), file.display());
        println!(
            "make a disk of it with: losetup --find --show --direct-io=on --sector-size 4096 {}",
            file.display()
        );
        println!("end it with: amphi umount {}", directory.display());
        return Ok(());
    }
    // Memory that the kernel frees by writing to a file system on this disk comes from us in the end: waiting
    // for it here would be waiting for ourselves. Only the superuser may say so, and only the superuser can
    // make a disk of the file.
    let _ = rustix::process::configure_io_flusher_behavior(true);
    serving.serve(image, directory, open, "is exported in")
}

/// An SSD without regard to what is on it.
struct Raw {
    device: Arc<Ssd>,
    /// The same one, its requests written down, if that was asked for.
    recorded: Option<Arc<Recorded<Ssd>>>,
}

fn open(device: Arc<Ssd>, using: &Use) -> Result<Box<dyn Served>> {
    let mut record = None;
    for word in &using.words {
        match word.split_once('=') {
            Some(("record", file)) if file.starts_with('/') => record = Some(create(file)?),
            Some(("record", _)) => bail!("`{word}`: the record needs a path that begins with /"),
            _ => bail!("`{word}` is not an option of an export; see amphi export --help"),
        }
    }
    let recorded = record.map(|file| Arc::new(Recorded::new(Arc::clone(&device), file)));
    Ok(Box::new(Raw { device, recorded }))
}

/// A file of its own for each export: its owner's traffic is nobody else's business.
fn create(file: &str) -> Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create_new(true).mode(0o600);
    options.open(file).with_context(|| format!("the record {file} cannot be created"))
}

impl Served for Raw {
    fn attach(&self, directory: &Path, options: &MountOptions) -> Result<Doors, MountError> {
        let session = match &self.recorded {
            Some(port) => amphi_front_export::export(Arc::clone(port), directory, options)?,
            None => amphi_front_export::export(Arc::clone(&self.device), directory, options)?,
        };
        Ok(session.into())
    }

    fn describe(&self) -> Value {
        filesystem::describe(&self.device)
    }

    fn stats(&self) -> Value {
        Value::Null
    }

    fn flush(&self) -> Result<()> {
        Ok(self.device.flush()?)
    }

    fn trim_free(&self, _shortest: u64) -> Result<u64> {
        bail!("what is free is known to the file system on the disk; run fstrim on that")
    }

    fn pins(&self) -> Result<Value> {
        bail!("an export has no files, so none is pinned")
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.flush()
    }
}
