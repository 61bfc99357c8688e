//! `amphi power-cut`: the emulated SSD loses its power, under a mounted file system, under an export, or at
//! rest.

use std::path::PathBuf;

use anyhow::Result;

use crate::control::Request;
use crate::device::{self, Speed};
use crate::target::Target;
use crate::umount;

/// Cuts the power of an emulated SSD.
///
/// What its contract calls durable stays; the rest is kept, dropped or torn as the seed decides. A mounted
/// file system's daemon exits at once, without flushing, and the mount goes away. `amphi mount` afterwards
/// recovers.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  amphi power-cut /mnt\n  amphi power-cut ssd.img --seed 7")]
pub struct Options {
    /// An image, or the directory where one is mounted.
    path: PathBuf,
    /// Decides what happens to what is not durable.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

pub fn run(options: &Options) -> Result<()> {
    let target = Target::find(&options.path)?;
    match target.ask(&Request::PowerCut { seed: options.seed })? {
        Some(mut daemon) => {
            daemon.answer()?;
            daemon.until_exit();
            umount::wait_until_free(&target.image)?;
        }
        None => device::open(&target.image, Speed::Free)?.power_cut(options.seed),
    }
    println!(
        "power cut (seed {}); mount or export it again: amphi mount {} DIR",
        options.seed,
        target.image.display()
    );
    Ok(())
}
