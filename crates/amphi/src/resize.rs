//! `amphi resize`: lets an unmounted file system grow on its SSD.

use std::path::PathBuf;

use anyhow::Result;

use crate::device::{self, Speed};
use crate::filesystem;
use amphi_volume::size;

/// Lets an unmounted file system grow, to SIZE or to the whole SSD.
///
/// It happens all at once: a crash leaves the size as it was or as asked for. Each further 128 MB bring as
/// many inodes as those before have. A file system cannot shrink.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  amphi mkfs ssd.img --size 8G --fs-size 1G     leaves room
  amphi resize ssd.img 4G
  amphi resize ssd.img                          to the whole SSD")]
pub struct Options {
    /// The image.
    image: PathBuf,
    /// The file system's size afterwards.
    #[arg(value_parser = size::parse)]
    size: Option<u64>,
}

pub fn run(options: &Options) -> Result<()> {
    let device = device::open(&options.image, Speed::Free)?;
    let (before, after) = filesystem::grow(&device, options.size)?;
    let image = options.image.display();
    if before == after {
        println!("{image}: the file system has {} already", size::shown(after));
    } else {
        println!("{image}: the file system grew from {} to {}", size::shown(before), size::shown(after));
    }
    Ok(())
}
