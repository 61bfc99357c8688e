//! `amphi tune`: changes the label, the UUID and the default mount options of an unmounted file system.

use std::path::PathBuf;

use amphi_volume::{Changes, shown_uuid};
use anyhow::{Result, bail};

use crate::device::{self, Speed};
use crate::filesystem;

/// Changes an unmounted file system's label, UUID and default mount options, all at once.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  amphi tune ssd.img --label backup
  amphi tune ssd.img --uuid random
  amphi tune ssd.img -o data=journal,cache=64M     how it is mounted from now on, unless amphi mount -o says otherwise
  amphi tune ssd.img -o \"\"                        as usual again")]
pub struct Options {
    /// The image.
    image: PathBuf,
    /// The file system's name, at most 32 bytes.
    #[arg(long)]
    label: Option<String>,
    /// Its UUID, or `random` for a new one.
    #[arg(long, value_parser = filesystem::parse_uuid)]
    uuid: Option<[u8; 16]>,
    /// Mount options that hold unless a mount says otherwise, instead of those so far. `amphi mount --help`
    /// lists them.
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Option<String>,
}

pub fn run(options: &Options) -> Result<()> {
    let changes =
        Changes { label: options.label.clone(), uuid: options.uuid, options: options.options.clone() };
    if changes == Changes::default() {
        bail!("nothing to change was named; see amphi tune --help");
    }
    let now = filesystem::tune(&device::open(&options.image, Speed::Free)?, &changes)?;
    let shown = |text: String| if text.is_empty() { "none".to_owned() } else { text };
    println!(
        "{}: label {}, uuid {}, mount options {}",
        options.image.display(),
        shown(now.label),
        shown_uuid(now.uuid),
        shown(now.mount_options)
    );
    Ok(())
}
