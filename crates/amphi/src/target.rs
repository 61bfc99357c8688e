//! What the user points at: an image, or the directory where one is mounted. Either way the image, and the
//! daemon if there is one.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::control::{self, Pending, Request};
use crate::mountinfo;

/// An image and where it is mounted.
#[derive(Debug)]
pub struct Target {
    /// The image's absolute path.
    pub image: PathBuf,
    /// The mounted directory, if any.
    pub mounted_at: Option<PathBuf>,
}

impl Target {
    /// Finds out what `path` is.
    ///
    /// # Errors
    /// If it does not exist, or is a directory without an Amphi mount.
    pub fn find(path: &Path) -> Result<Self> {
        if let Some(mount) = mountinfo::mounted_at(path)? {
            return Ok(Self { image: mount.image, mounted_at: Some(mount.directory) });
        }
        let metadata =
            std::fs::metadata(path).with_context(|| format!("{} cannot be opened", path.display()))?;
        if metadata.is_dir() {
            bail!(
                "nothing of Amphi's is mounted at {}; name an image or a mounted directory",
                path.display()
            );
        }
        let image = mountinfo::absolute(path)?;
        let mounted_at = mountinfo::mount_of(&image)?.map(|mount| mount.directory);
        Ok(Self { image, mounted_at })
    }

    /// Sends a request to the daemon that has the image mounted; `None` without one.
    ///
    /// # Errors
    /// If it cannot be reached.
    pub fn ask(&self, request: &Request) -> Result<Option<Pending>> {
        control::send(&self.image, request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_directory_is_no_target() {
        let directory = tempfile::tempdir().unwrap();
        let error = Target::find(directory.path()).unwrap_err().to_string();
        assert!(error.contains("nothing of Amphi's is mounted"), "{error}");
        let error = Target::find(&directory.path().join("none")).unwrap_err().to_string();
        assert!(error.contains("cannot be opened"), "{error}");
    }
}
