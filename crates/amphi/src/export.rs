//! `amphi export`: the emulated SSD's block side as a file, from which `losetup` makes a disk for the kernel's own file systems.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use amphi_device::BlockPort;
use amphi_front_export::FILE_NAME;
use amphi_front_fuse::{MountError, MountOptions, Session};
use amphi_ssd::Ssd;
use anyhow::{Result, bail};
use serde_json::Value;

use crate::filesystem::{self, Use, Volume};
use crate::mount::{self, Serving};

/// Exports the SSD's block side as the file DIRECTORY/ssd.
///
/// With `losetup` it becomes a disk on which the kernel's ext4, XFS and Btrfs run. Flush, FUA and discard reach the SSD. `amphi stats`,
/// `power-cut` and `umount` work on an export as on a mount; detach the loop device before `umount`.
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
    // Memory that the kernel frees by writing to a file system on this disk comes from us in the end: waiting for it here would be
    // waiting for ourselves. Only the superuser may say so, and only the superuser can make a disk of the file.
    let _ = rustix::process::configure_io_flusher_behavior(true);
    serving.serve(image, directory, open, "is exported in")
}

/// An SSD without regard to what is on it.
struct Raw(Arc<Ssd>);

fn open(device: Arc<Ssd>, using: &Use) -> Result<Box<dyn Volume>> {
    if let Some(word) = using.words.first() {
        bail!("`{word}` is not an option of an export; see amphi export --help");
    }
    Ok(Box::new(Raw(device)))
}

impl Volume for Raw {
    fn attach(&self, directory: &Path, options: &MountOptions) -> Result<Session, MountError> {
        amphi_front_export::export(Arc::clone(&self.0), directory, options)
    }

    fn describe(&self) -> Value {
        filesystem::describe(&self.0)
    }

    fn flush(&self) -> Result<()> {
        Ok(self.0.flush()?)
    }

    fn trim_free(&self, _shortest: u64) -> Result<u64> {
        bail!("what is free is known to the file system on the disk; run fstrim on that")
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.flush()
    }
}
