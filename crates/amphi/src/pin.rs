//! `amphi pin`, `unpin`, `pins`: ranges of files of a mount, pinned to the window of its SSD.

use std::fs::OpenOptions;
use std::os::fd::AsFd;
use std::path::PathBuf;

use amphi_volume::size;
use anyhow::{Context, Result, anyhow, bail};
use rustix::io::Errno;

use crate::control::Request;
use crate::target::Target;

/// Pins a range of a file to the SSD's window, or (unpin) ends the pins in it.
///
/// While a range is pinned, writes to it go by bytes and are durable when they return; `fsync` finds nothing
/// left to do for them. The SSD must have been made with --firmware ba-buffer, and whoever pins must be
/// allowed to read and write the file.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  amphi pin /mnt/journal --range 0-1M
  amphi unpin /mnt/journal
  amphi pins /mnt                      what is pinned")]
pub struct Options {
    /// A file of a mount.
    file: PathBuf,
    /// First byte and the byte after the last one, multiples of 4K; all of the file's whole pages unless
    /// given.
    #[arg(long, value_name = "FROM-TO", value_parser = range)]
    range: Option<(u64, u64)>,
}

/// Shows what is pinned to the window of a mount's SSD.
#[derive(clap::Args)]
pub struct Listing {
    /// The image, or the directory where it is mounted.
    path: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

fn range(text: &str) -> Result<(u64, u64), String> {
    let (from, to) = text.split_once('-').ok_or("a range is two sizes with a dash between")?;
    match (size::parse(from)?, size::parse(to)?) {
        (from, to) if from < to => Ok((from, to)),
        _ => Err("a range ends behind its begin".to_owned()),
    }
}

pub fn run(options: &Options, pins: bool) -> Result<()> {
    const PAGE: u64 = 4096;
    let shown = options.file.display();
    let file = OpenOptions::new().read(true).write(true).open(&options.file);
    let file = file.with_context(|| format!("{shown} cannot be opened for reading and writing"))?;
    let (from, to) = match options.range {
        Some(range) => range,
        None if pins => (0, file.metadata()?.len() / PAGE * PAGE),
        None => (0, u64::MAX),
    };
    amphi_front_fuse::pins::ask(file.as_fd(), pins, from, to - from)
        .map_err(|errno| refusal(errno, pins))
        .with_context(|| format!("{shown} cannot be {}", if pins { "pinned" } else { "unpinned" }))
}

/// The daemon's answer in a sentence that says what to do.
fn refusal(errno: Errno, pins: bool) -> anyhow::Error {
    match errno {
        Errno::NOTTY => anyhow!("it is not on an Amphi mount"),
        Errno::OPNOTSUPP => anyhow!(
            "its file system has no pins; make one with: amphi mkfs --firmware ba-buffer --profile 2b-ssd --fs ext4like"
        ),
        Errno::BUSY => anyhow!("some of the range is pinned already; amphi pins shows what is"),
        Errno::NOSPC => {
            anyhow!(
                "the window or its table has no room; unpin something, or make the SSD with more --pin-entries"
            )
        }
        Errno::INVAL if pins => {
            anyhow!("a pin is of whole pages of 4096 bytes inside of the file, all of them written")
        }
        Errno::INVAL => anyhow!("a pin ends as a whole; amphi pins shows its range"),
        Errno::NOENT => anyhow!("nothing of the range is pinned"),
        Errno::PERM => anyhow!("another user has pinned it"),
        errno => errno.into(),
    }
}

pub fn list(options: &Listing) -> Result<()> {
    let target = Target::find(&options.path)?;
    let Some(mut daemon) = target.ask(&Request::Pins)? else {
        bail!("{} is not mounted; pins last as long as a mount", target.image.display());
    };
    let pins = daemon.answer()?;
    if options.json {
        println!("{pins:#}");
        return Ok(());
    }
    let pins = pins.as_array().context("the mount's daemon gave no list; remount the image")?;
    if pins.is_empty() {
        println!("nothing is pinned");
    }
    for pin in pins {
        let number = |field: &str| pin[field].as_u64().unwrap_or_default();
        println!(
            "inode {}: {} from {}, by user {}",
            number("inode"),
            size::shown(number("length")),
            size::shown(number("offset")),
            number("user")
        );
    }
    Ok(())
}
