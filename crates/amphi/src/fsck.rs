//! `amphi fsck`: checks an unmounted image and, if asked, repairs it. The exit code says the outcome, as
//! e2fsck's does.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;

use crate::device::{self, Speed};
use crate::filesystem::{self, CheckReport};
use crate::mountinfo;

/// Checks the file system on an unmounted image.
///
/// The device first recovers from a crash, as mounting would make it do. With --repair, what can be mended
/// is; files without a name come to lost+found.
#[derive(clap::Args)]
#[command(after_help = "\
Exit codes: 0 clean, 1 errors found and repaired, 4 errors left, 8 could not check.

Examples:
  amphi fsck ssd.img
  amphi fsck ssd.img --repair
  amphi fsck -n ssd.img       of an image that may only be read
  amphi fsck ssd.img --json")]
pub struct Options {
    /// The image.
    image: PathBuf,
    /// Mend what is found, as long as that makes it better.
    #[arg(long)]
    repair: bool,
    /// Change nothing, not even by the device's own recovery: the image need not be writable.
    #[arg(short = 'n', conflicts_with = "repair")]
    no_change: bool,
    /// One JSON object: image, filesystem, clean, report; with --repair also repaired: the findings before.
    #[arg(long)]
    json: bool,
}

const CLEAN: u8 = 0;
const REPAIRED: u8 = 1;
const ERRORS_LEFT: u8 = 4;
/// The code of a check that did not come to an end, or could not say what it found.
pub const COULD_NOT_RUN: u8 = 8;

pub fn run(options: &Options) -> ExitCode {
    ExitCode::from(match check(options) {
        Ok(report) if !report.is_clean() => ERRORS_LEFT,
        Ok(report) if report.was_repaired() => REPAIRED,
        Ok(_) => CLEAN,
        Err(error) => {
            eprintln!("amphi: {error:#}");
            COULD_NOT_RUN
        }
    })
}

/// Checks, repairs if asked, and prints the outcome.
fn check(options: &Options) -> Result<CheckReport> {
    let device = Arc::new(match options.no_change {
        true => device::open_copy(&options.image, Speed::Free)?,
        false => device::open(&options.image, Speed::Free)?,
    });
    let report = if options.repair { filesystem::repair(&device)? } else { filesystem::check(&device)? };
    let image = mountinfo::absolute(&options.image)?;
    if options.json {
        println!("{}", report.json(&image));
    } else {
        report.print(&image);
    }
    Ok(report)
}
