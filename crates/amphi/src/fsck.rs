//! `amphi fsck`: checks an unmounted image. The exit code says the outcome, as e2fsck's does.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;

use crate::device::{self, Speed};
use crate::filesystem;
use crate::mountinfo;

/// Checks the file system on an unmounted image.
///
/// The device first recovers from a crash, as mounting would make it do.
#[derive(clap::Args)]
#[command(after_help = "\
Exit codes: 0 clean, 4 errors found, 8 could not check.

Examples:
  amphi fsck ssd.img
  amphi fsck ssd.img --json")]
pub struct Options {
    /// The image.
    image: PathBuf,
    /// One JSON object: image, filesystem, clean, findings.
    #[arg(long)]
    json: bool,
}

const CLEAN: u8 = 0;
const ERRORS_LEFT: u8 = 4;
const COULD_NOT_RUN: u8 = 8;

pub fn run(options: &Options) -> ExitCode {
    ExitCode::from(match check(options) {
        Ok(true) => CLEAN,
        Ok(false) => ERRORS_LEFT,
        Err(error) => {
            eprintln!("amphi: {error:#}");
            COULD_NOT_RUN
        }
    })
}

/// Whether the image is clean.
fn check(options: &Options) -> Result<bool> {
    let device = device::open(&options.image, Speed::Free)?;
    let report = filesystem::check(&device)?;
    let image = mountinfo::absolute(&options.image)?;
    if options.json {
        println!("{}", report.json(&image));
    } else {
        report.print(&image);
    }
    Ok(report.is_clean())
}
