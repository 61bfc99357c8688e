//! An emulated SSD in memory, mounted or exported by a daemon of the program `amphi`, as any user would do
//! it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use rustix::fs::{FallocateFlags, fallocate};

use super::daemon::Daemon;
use super::program::output;
use super::workspace::{Workspace, text};

/// What is to be served, and how.
#[derive(Clone, Copy, Debug)]
pub struct Service<'a> {
    /// A name of its own in the workspace.
    pub name: &'a str,
    /// `mount` or `export`.
    pub verb: &'a str,
    /// Options of `amphi mkfs`.
    pub mkfs: &'a [&'a str],
    /// Options of `amphi mount` or `amphi export`.
    pub options: &'a [&'a str],
}

/// A directory that a daemon serves. Unmounted when dropped.
#[derive(Debug)]
pub struct Served {
    daemon: Daemon,
    program: PathBuf,
    image: PathBuf,
}

impl Served {
    /// Makes an image in memory and serves it with the program `amphi`.
    ///
    /// # Errors
    /// What the program complains of.
    pub fn new(workspace: &Workspace, amphi: &Path, service: &Service<'_>) -> Result<Self> {
        let directory = workspace.directory(service.name)?;
        let image = workspace.path(&format!("{}.img", service.name));
        output(Command::new(amphi).arg("mkfs").args(service.mkfs).arg(&image))?;
        let what = ["--foreground", text(&image)?, text(&directory)?];
        let arguments = [&[service.verb], service.options, &what].concat();
        let daemon = Daemon::new(amphi, &arguments, directory.clone())?;
        Ok(Self { daemon, program: amphi.to_owned(), image })
    }

    /// What it serves.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.daemon.directory()
    }

    /// What the device counts: the JSON of `amphi stats`.
    ///
    /// # Errors
    /// The daemon is gone.
    pub fn stats(&self) -> Result<serde_json::Value> {
        let printed = output(Command::new(&self.program).arg("stats").arg(self.directory()).arg("--json"))?;
        serde_json::from_str(&printed).context("amphi stats printed no JSON")
    }

    /// Gives the image all its memory, where there is as much. A block of flash that is written for the first
    /// time has none: it was given back when the SSD was switched on. The host of a virtual machine may take
    /// 5 ms to give a megabyte again, and an SSD without delays would have these.
    ///
    /// # Errors
    /// The image is gone.
    pub fn make_resident(&self) -> Result<()> {
        let file = File::options().write(true).open(&self.image)?;
        let bytes = file.metadata()?.len();
        // tmpfs reserves what is new, and fills it with zeros when it is reserved again.
        for _ in 0..2 {
            if fallocate(&file, FallocateFlags::KEEP_SIZE, 0, bytes).is_err() {
                break;
            }
        }
        Ok(())
    }
}
