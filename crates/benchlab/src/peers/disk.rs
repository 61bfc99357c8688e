//! Disks of memory with the kernel's file systems on them: a loop device over a file in a tmpfs, which adds a
//! kernel worker to every request, and zram, which answers at once.
//!
//! `mount` ties a loop device to its mount: it goes with it. A zram device has no such bond, so its number is
//! written down until it is gone, and the next run removes what a killed one has left.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::program::run;
use super::workspace::{Workspace, text, unmount};

/// What a disk is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// A loop device over a file in memory.
    Loop,
    /// zram.
    Zram,
}

/// Bytes of each disk. Memory is used as it is written.
const DISK_BYTES: u64 = 1 << 30;
/// Where zram devices of running benchmarks are written down.
const CLAIMS: &str = "/run/amphi-bench";

/// A mounted file system of the kernel's. Unmounted, and its disk removed, when dropped.
#[derive(Debug)]
pub struct Disk {
    directory: PathBuf,
    /// Dropped after the unmount.
    _zram: Option<Zram>,
}

impl Disk {
    /// Makes a disk, makes `kind` (ext4, xfs or btrfs) on it, and mounts it.
    ///
    /// # Errors
    /// The machine lacks the device, the file system or a program, or the caller is not root.
    pub fn new(workspace: &Workspace, name: &str, kind: &str, backing: Backing) -> Result<Self> {
        if !rustix::process::geteuid().is_root() {
            bail!("only root can mount it");
        }
        let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
        if !known.lines().any(|line| line.trim() == kind) {
            bail!("this kernel has no {kind}, or its module is not loaded");
        }
        let directory = workspace.directory(name)?;
        match backing {
            Backing::Zram => {
                let zram = Zram::new()?;
                format(kind, &zram.device)?;
                run("mount", &["-t", kind, &zram.device, text(&directory)?])?;
                Ok(Self { directory, _zram: Some(zram) })
            }
            Backing::Loop => {
                let file = workspace.path(&format!("{name}.img"));
                std::fs::File::create(&file)?.set_len(DISK_BYTES)?;
                format(kind, text(&file)?)?;
                run("mount", &["-t", kind, "-o", "loop", text(&file)?, text(&directory)?])?;
                Ok(Self { directory, _zram: None })
            }
        }
    }

    /// Where it is mounted.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        unmount(&self.directory);
    }
}

fn format(kind: &str, on: &str) -> Result<()> {
    let force = if kind == "ext4" { "-F" } else { "-f" };
    run(&format!("mkfs.{kind}"), &["-q", force, on])
}

/// A zram device. Removed when dropped.
#[derive(Debug)]
struct Zram {
    number: u32,
    device: String,
    claim: PathBuf,
}

impl Zram {
    fn new() -> Result<Self> {
        let number = std::fs::read_to_string("/sys/class/zram-control/hot_add")
            .context("this kernel has no zram, or its module is not loaded")?;
        let number: u32 = number.trim().parse().context("the kernel named no zram device")?;
        let claim = Path::new(CLAIMS).join(format!("{number}.zram"));
        let zram = Self { number, device: format!("/dev/zram{number}"), claim };
        std::fs::create_dir_all(CLAIMS)?;
        std::fs::write(&zram.claim, std::process::id().to_string())?;
        std::fs::write(format!("/sys/block/zram{number}/disksize"), DISK_BYTES.to_string())
            .context("the zram device cannot be sized")?;
        Ok(zram)
    }
}

impl Drop for Zram {
    fn drop(&mut self) {
        match remove_zram(self.number) {
            Ok(()) => drop(std::fs::remove_file(&self.claim)),
            Err(error) => crate::complain(format_args!("{} stays: {error:#}", self.device)),
        }
    }
}

fn remove_zram(number: u32) -> Result<()> {
    if Path::new(&format!("/sys/block/zram{number}")).exists() {
        std::fs::write(format!("/sys/block/zram{number}/reset"), "1").context("it cannot be reset")?;
        std::fs::write("/sys/class/zram-control/hot_remove", number.to_string())?;
    }
    Ok(())
}

/// Removes a device whose mount may be about to go with a namespace that nobody is in any more. Answers
/// whether it is gone.
fn remove_patiently(number: u32) -> bool {
    const TRIES: u32 = 250;
    const PAUSE_NS: u64 = 20_000_000;
    (0..TRIES).any(|_| {
        let is_gone = remove_zram(number).is_ok();
        if !is_gone {
            amphi_rt::time::sleep_ns(PAUSE_NS);
        }
        is_gone
    })
}

/// Removes zram devices that killed runs have left.
pub fn reclaim() {
    let claims = std::fs::read_dir(CLAIMS).into_iter().flatten().flatten();
    for claim in claims.map(|entry| entry.path()) {
        let number = claim.file_stem().and_then(|stem| stem.to_str()?.parse().ok());
        let owner = std::fs::read_to_string(&claim).unwrap_or_default();
        let lives = !owner.is_empty() && Path::new("/proc").join(&owner).exists();
        if let (Some(number), false) = (number, lives)
            && remove_patiently(number)
        {
            // Whoever finds it again tries again.
            let _ = std::fs::remove_file(&claim);
        }
    }
}
