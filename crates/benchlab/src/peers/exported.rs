//! The kernel's file systems on the block side of an emulated SSD: a daemon exports it as a file, a loop
//! device makes a disk of that.
//!
//! The loop device is told to go with its last user as soon as it is there, so it goes with the mount, also
//! when the run is killed. The daemon dies with the run too; what the kernel still wants to write then fails,
//! and nobody waits for it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::program::{output, run};
use super::served::{Served, Service};
use super::workspace::{Workspace, text, unmount};

/// One of the kernel's file systems, and how it is made and mounted.
#[derive(Clone, Copy, Debug)]
pub struct KernelFs<'a> {
    /// The kernel's name for it.
    pub kind: &'a str,
    /// Options of `mkfs`. Its blocks are all new: nothing has to be discarded.
    pub mkfs: &'a [&'a str],
    /// Mount options, separated by commas; may be empty.
    pub options: &'a str,
}

/// A mounted file system of the kernel's on an exported SSD. Taken away when dropped.
#[derive(Debug)]
pub struct Exported {
    media: PathBuf,
    device: String,
    served: Served,
}

impl Exported {
    /// Makes the SSD, serves it, makes the file system, and mounts it.
    ///
    /// # Errors
    /// The machine lacks loop devices, the file system or a program, or the caller is not root.
    pub fn new(
        workspace: &Workspace,
        amphi: &Path,
        service: &Service<'_>,
        kernel_fs: &KernelFs<'_>,
    ) -> Result<Self> {
        if !rustix::process::geteuid().is_root() {
            bail!("only root can mount it");
        }
        let media = workspace.directory(&format!("{}-media", service.name))?;
        let served = Served::new(workspace, amphi, service)?;
        let attached = Attached::new(&served.directory().join("ssd"))?;
        let device = attached.path().to_owned();
        let quiet: &[&str] = if kernel_fs.kind == "ext4" { &["-q", "-F"] } else { &["-q", "-f"] };
        run(&format!("mkfs.{}", kernel_fs.kind), &[quiet, kernel_fs.mkfs, &[&device]].concat())?;
        let options = if kernel_fs.options.is_empty() { "defaults" } else { kernel_fs.options };
        run("mount", &["-t", kernel_fs.kind, "-o", options, &device, text(&media)?])?;
        // From here on the mount alone holds the loop device.
        drop(attached);
        Ok(Self { media, device, served })
    }

    /// Where it is mounted.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.media
    }

    /// The block device.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.device
    }

    /// What exports the SSD.
    #[must_use]
    pub const fn served(&self) -> &Served {
        &self.served
    }
}

impl Drop for Exported {
    fn drop(&mut self) {
        unmount(&self.media);
        // The daemon ends only when its file is closed, and the loop device closes it a moment after the
        // unmount.
        wait_until_detached(&self.device, self.served.directory());
        // Btrfs remembers devices by name; the next one may have the same.
        let _ = Command::new("btrfs").args(["device", "scan", "--forget"]).output();
    }
}

fn wait_until_detached(device: &str, directory: &Path) {
    const TRIES: u32 = 500;
    const PAUSE_NS: u64 = 10_000_000;
    let backing = format!("/sys/block/{}/loop/backing_file", device.trim_start_matches("/dev/"));
    for _ in 0..TRIES {
        match std::fs::read_to_string(&backing) {
            Ok(file) if Path::new(file.trim()).starts_with(directory) => amphi_rt::time::sleep_ns(PAUSE_NS),
            _ => return,
        }
    }
}

/// A loop device, held open. It goes with its last user: with this, unless something on it is mounted by
/// then.
#[derive(Debug)]
pub struct Attached {
    path: String,
    _held: File,
}

impl Attached {
    /// Attaches one to a file.
    ///
    /// # Errors
    /// There are none, or the caller is not root.
    pub fn new(file: &Path) -> Result<Self> {
        // Finding a free one and taking it are two steps; another program may be faster in between.
        const TRIES: u32 = 5;
        let mut attach = Command::new("losetup");
        attach.args(["--find", "--show", "--direct-io=on", "--sector-size", "4096"]).arg(file);
        let mut attached = output(&mut attach);
        for _ in 1..TRIES {
            if attached.is_ok() {
                break;
            }
            attached = output(&mut attach);
        }
        let path = attached.context("no loop device can be had")?.trim().to_owned();
        let held = File::open(&path);
        // From here on the kernel detaches it by itself when nobody has it open, also when we are killed.
        run("losetup", &["--detach", &path])?;
        let held = held.with_context(|| format!("{path} cannot be opened"))?;
        Ok(Self { path, _held: held })
    }

    /// The block device.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }
}
