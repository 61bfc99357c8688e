//! `amphi umount`: unmounts, and returns when everything is on the device and the image is free.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Error, Result, bail};

use crate::control::{Pending, Request};
use crate::target::Target;
use crate::{device, mountinfo};

/// Flushes, unmounts, and waits until the image is free.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  amphi umount /mnt
  amphi umount /mnt --timeout 10     fails if something still holds it after 10 s; it goes when that lets go")]
pub struct Options {
    /// The mounted directory, or the image.
    directory: PathBuf,
    /// Take the directory away even if files are in use; wait until they are closed.
    #[arg(long)]
    lazy: bool,
    /// Wait so many seconds at the most until the image is free; 0 does not wait. What was taken away stays
    /// so.
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
}

/// After so long without an answer the user is told who holds the mount.
const PATIENCE: Duration = Duration::from_secs(1);

pub fn run(options: &Options) -> Result<()> {
    let target = Target::find(&options.directory)?;
    let Some(directory) = &target.mounted_at else {
        bail!("{} is not mounted", target.image.display());
    };
    // Asked before the unmount: afterwards the daemon may be gone before it could listen.
    let Some(mut daemon) = living_daemon(&target) else {
        amphi_front_fuse::detach(directory)?;
        return Ok(());
    };
    if options.lazy {
        amphi_front_fuse::detach(directory)?;
    } else {
        amphi_front_fuse::unmount(directory)?;
    }
    match flushed(&mut daemon, &target, options.timeout) {
        Ok(()) => {}
        Err(Unflushed::Waiting) => bail!(
            "{} is taken away here, but the image {} is still in use; its daemon ends when nobody holds it any more",
            directory.display(),
            target.image.display()
        ),
        // It is unmounted all the same, as umount(8) has it; whoever scripts this looks at what is mounted.
        Err(Unflushed::Failed(error)) => eprintln!(
            "amphi: {} is unmounted, but {error:#}; check it with: amphi fsck {}",
            directory.display(),
            target.image.display()
        ),
    }
    daemon.until_exit();
    wait_until_free(&target.image)
}

/// Why it is not known that everything is on the device.
enum Unflushed {
    /// The daemon still serves somebody, and the time is up.
    Waiting,
    /// The daemon says so.
    Failed(Error),
}

/// Waits until the daemon has flushed everything, for `seconds` at the most, and says after a while who keeps
/// it from that.
fn flushed(daemon: &mut Pending, target: &Target, seconds: Option<u64>) -> Result<(), Unflushed> {
    let limit = seconds.map(Duration::from_secs);
    let first = limit.map_or(PATIENCE, |limit| limit.min(PATIENCE)).max(Duration::from_millis(1));
    if daemon.answer_within(first).map_err(Unflushed::Failed)?.is_some() {
        return Ok(());
    }
    for holder in mountinfo::holders(&target.image) {
        eprintln!("amphi: {} is still mounted {holder}", target.image.display());
    }
    let Some(limit) = limit else {
        return daemon.answer().map(drop).map_err(Unflushed::Failed);
    };
    let rest = limit.saturating_sub(first).max(Duration::from_millis(1));
    match daemon.answer_within(rest).map_err(Unflushed::Failed)? {
        Some(_) => Ok(()),
        None => Err(Unflushed::Waiting),
    }
}

/// The daemon, listening; `None` if it is dead.
fn living_daemon(target: &Target) -> Option<Pending> {
    let mut daemon = target.ask(&Request::AwaitExit).ok()??;
    daemon.answer().ok()?;
    Some(daemon)
}

/// Waits for the last moment of the daemon's exit, in which the kernel gives up its lock on the image.
///
/// # Errors
/// If that moment does not come.
pub fn wait_until_free(image: &Path) -> Result<()> {
    const TRIES: u32 = 1000;
    const PAUSE_NS: u64 = 2_000_000;
    for _ in 0..TRIES {
        if !device::is_in_use(image)? {
            return Ok(());
        }
        amphi_rt::time::sleep_ns(PAUSE_NS);
    }
    bail!("{} is not mounted any more, but its daemon does not end; look at its log", image.display())
}
