//! Ctrl-C: the demo stops at the next safe place, so that mounts and temporary files are taken away on the
//! way out.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// From now on Ctrl-C, SIGTERM and SIGHUP only set a flag.
pub fn install() -> Result<()> {
    ctrlc::set_handler(|| INTERRUPTED.store(true, Ordering::Relaxed)).context("signals cannot be caught")
}

/// An error once somebody has asked to stop.
pub fn check() -> Result<()> {
    if INTERRUPTED.load(Ordering::Relaxed) {
        bail!("interrupted");
    }
    Ok(())
}
