//! `amphi fstrim`: tells the SSD which of its pages hold nothing, for a mounted file system or one at rest.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};

use crate::control::Request;
use crate::device::{self, Speed};
use crate::filesystem::{self, Use};
use crate::target::Target;
use amphi_volume::size;

/// Discards the free blocks of a file system, so that the SSD need not keep what they held.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  amphi fstrim /mnt\n  amphi fstrim ssd.img --minimum 1M")]
pub struct Options {
    /// An image, or the directory where one is mounted.
    path: PathBuf,
    /// Leave free runs shorter than this alone.
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "0")]
    minimum: u64,
}

pub fn run(options: &Options) -> Result<()> {
    let target = Target::find(&options.path)?;
    let trimmed = match target.ask(&Request::Trim { shortest: options.minimum })? {
        Some(mut daemon) => {
            daemon.answer()?.as_u64().context("the mount's daemon gave no number; remount the image")?
        }
        None => {
            let device = Arc::new(device::open(&target.image, Speed::Free)?);
            let volume = filesystem::open(device, &Use::default())?;
            let trimmed = volume.trim_free(options.minimum)?;
            volume.finish()?;
            trimmed
        }
    };
    println!("{}: {} discarded", options.path.display(), size::shown(trimmed));
    Ok(())
}
