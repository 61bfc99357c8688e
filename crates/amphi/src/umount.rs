//! `amphi umount`: unmounts, and returns when everything is on the device and the image is free.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::control::{Pending, Request};
use crate::target::Target;

/// Flushes, unmounts, and waits until the image is free.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  amphi umount /mnt")]
pub struct Options {
    /// The mounted directory, or the image.
    directory: PathBuf,
    /// Take the directory away even if files are in use; wait until they are closed.
    #[arg(long)]
    lazy: bool,
}

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
    if let Err(error) = daemon.answer() {
        // It is unmounted all the same, as umount(8) has it; whoever scripts this looks at what is mounted.
        eprintln!(
            "amphi: {} is unmounted, but {error:#}; check it with: amphi fsck {}",
            directory.display(),
            target.image.display()
        );
    }
    daemon.until_exit();
    wait_until_free(&target.image)
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
    let file = File::open(image).with_context(|| format!("{} cannot be opened", image.display()))?;
    for _ in 0..TRIES {
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) => amphi_rt::time::sleep_ns(PAUSE_NS),
            Err(error) => return Err(error).with_context(|| format!("{} cannot be locked", image.display())),
        }
    }
    bail!("{} is not mounted any more, but its daemon does not end; look at its log", image.display())
}
