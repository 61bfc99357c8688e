//! The emulated SSD behind an image, opened with errors that say what to do next.

use std::fs::File;
use std::path::Path;

use amphi_rt::time::{now_ns, sleep_ns};
use amphi_ssd::{ImageError, OpenOptions, Profile, Ssd};
use anyhow::{Context, Result, anyhow};
use rustix::fs::{Access, AtFlags, CWD, FlockOperation, accessat, flock};
use rustix::io::Errno;

use crate::mountinfo;

/// How long a killed process may hold on to its image: the kernel takes its memory away first, gigabytes of
/// it.
const DYING_NS: u64 = 2_000_000_000;

/// How the device's time relates to ours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Speed {
    /// The profile's times, multiplied.
    Dilated(f64),
    /// No delays.
    Free,
}

/// Opens an image for this process alone.
///
/// # Errors
/// Not an image, another version, damaged, or in use: then the error says where it is mounted.
pub fn open(image: &Path, speed: Speed) -> Result<Ssd> {
    open_by(image, speed, Ssd::open)
}

/// As [`open`], but the image stays as it is, and need not be writable: what is changed is forgotten with the
/// device.
///
/// # Errors
/// As [`open`].
pub fn open_copy(image: &Path, speed: Speed) -> Result<Ssd> {
    open_by(image, speed, Ssd::open_copy)
}

/// Whether this process may change the image.
pub fn is_writable(image: &Path) -> bool {
    accessat(CWD, image, Access::READ_OK | Access::WRITE_OK, AtFlags::EACCESS).is_ok()
}

fn open_by(
    image: &Path,
    speed: Speed,
    open: fn(&Path, &OpenOptions) -> Result<Ssd, ImageError>,
) -> Result<Ssd> {
    let mut options = OpenOptions::default();
    match speed {
        Speed::Dilated(factor) => options.dilation = factor,
        Speed::Free => options.free = true,
    }
    let deadline_ns = now_ns() + DYING_NS;
    loop {
        match open(image, &options) {
            Ok(device) => return Ok(device),
            Err(ImageError::InUse { .. }) if now_ns() < deadline_ns && !is_served(image) => {
                sleep_ns(DYING_NS / 100)
            }
            Err(ImageError::InUse { .. }) => return Err(in_use(image)),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Whether somebody holds the lock on an image.
///
/// # Errors
/// If it cannot be opened or locked.
pub fn is_in_use(image: &Path) -> Result<bool> {
    let file = File::open(image).with_context(|| format!("{} cannot be opened", image.display()))?;
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(false),
        Err(Errno::WOULDBLOCK) => Ok(true),
        Err(error) => Err(error).with_context(|| format!("{} cannot be locked", image.display())),
    }
}

/// Whether a daemon answers for a mount of `image`. A killed one's mount stays, dead.
fn is_served(image: &Path) -> bool {
    matches!(mountinfo::mount_of(image), Ok(Some(mount)) if mount.directory.metadata().is_ok())
}

fn in_use(image: &Path) -> anyhow::Error {
    match mountinfo::mount_of(image) {
        Ok(Some(mount)) => {
            let directory = mount.directory.display();
            anyhow!(
                "{} is already mounted at {directory}; unmount it first with: amphi umount {directory}",
                image.display()
            )
        }
        _ => match mountinfo::absolute(image)
            .map(|image| mountinfo::holders(&image))
            .unwrap_or_default()
            .first()
        {
            Some(holder) => anyhow!("{} is in use: it is mounted {holder}", image.display()),
            None => anyhow!("{} is in use by another process; wait for it or end it", image.display()),
        },
    }
}

/// A built-in profile by its name, or a profile file.
///
/// # Errors
/// If it is neither, or the file is not a valid profile.
pub fn profile(name: &str) -> Result<Profile> {
    if name.contains('/') || name.ends_with(".toml") {
        return Profile::load(Path::new(name)).with_context(|| format!("the profile {name} cannot be used"));
    }
    Ok(Profile::named(name)?)
}
