//! A tmpfs of the run's own: backing files and mount points lie in it, so that nothing of the machine's disks
//! is measured, and nothing is left when it goes.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::program::run;

/// The run's directory. Without the right to mount it is an ordinary temporary one.
#[derive(Debug)]
pub struct Workspace {
    directory: tempfile::TempDir,
    is_mounted: bool,
}

impl Workspace {
    /// Makes it.
    ///
    /// # Errors
    /// No temporary directory can be made.
    pub fn new() -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("amphi-bench-")
            .tempdir()
            .context("a temporary directory cannot be made")?;
        let is_root = rustix::process::geteuid().is_root();
        let is_mounted = is_root
            && (mount_tmpfs(directory.path(), HUGE).is_ok() || mount_tmpfs(directory.path(), SIZE).is_ok());
        Ok(Self { directory, is_mounted })
    }

    /// A new directory in it.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn directory(&self, name: &str) -> Result<PathBuf> {
        let path = self.path(name);
        std::fs::create_dir(&path).with_context(|| format!("{} cannot be made", path.display()))?;
        Ok(path)
    }

    /// The path of a name in it.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        if self.is_mounted {
            unmount(self.directory.path());
        }
    }
}

const SIZE: &str = "size=75%";
/// An SSD writes each page of flash to a new place: without large pages in memory, every block that it is
/// sent would cost a page fault of 3 µs, which no device has. The SSD of the library has them too, and what
/// the loop devices' files gain they shall have.
const HUGE: &str = "size=75%,huge=always";

fn mount_tmpfs(directory: &Path, options: &str) -> Result<()> {
    run("mount", &["-t", "tmpfs", "-o", options, "amphi-bench", text(directory)?])
}

/// A path as text for a program's arguments.
///
/// # Errors
/// It is not valid UTF-8.
pub fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not valid UTF-8", path.display()))
}

/// Takes a mount away; what is still in use goes when it is closed.
pub fn unmount(directory: &Path) {
    let Ok(path) = text(directory) else { return };
    if let Err(first) = run("umount", &[path])
        && let Err(error) = run("umount", &["--lazy", path])
    {
        crate::complain(format_args!("{path} stays mounted: {first}; {error}"));
    }
}

/// The kernel's tmpfs as a peer. Unmounted when dropped.
#[derive(Debug)]
pub struct Tmpfs(PathBuf);

impl Tmpfs {
    /// Mounts one.
    ///
    /// # Errors
    /// It cannot be mounted.
    pub fn new(workspace: &Workspace) -> Result<Self> {
        let directory = workspace.directory("tmpfs")?;
        mount_tmpfs(&directory, SIZE)?;
        Ok(Self(directory))
    }

    /// Where it is mounted.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.0
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        unmount(&self.0);
    }
}
