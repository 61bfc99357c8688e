//! The emulated SSD behind an image, opened with errors that say what to do next.

use std::path::Path;

use amphi_ssd::{ImageError, OpenOptions, Profile, Ssd};
use anyhow::{Context, Result, anyhow};

use crate::mountinfo;

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
    let mut options = OpenOptions::default();
    match speed {
        Speed::Dilated(factor) => options.dilation = factor,
        Speed::Free => options.free = true,
    }
    Ssd::open(image, &options).map_err(|error| match error {
        ImageError::InUse { .. } => in_use(image),
        error => error.into(),
    })
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
        _ => anyhow!("{} is in use by another process; wait for it or end it", image.display()),
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
