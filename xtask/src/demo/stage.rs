//! Where the demo plays: an image and a mount in a temporary directory, which are gone when the stage is.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::step;

/// An image with a file system, usually mounted.
pub struct Stage {
    amphi: PathBuf,
    directory: tempfile::TempDir,
}

impl Stage {
    /// Creates the image and mounts it.
    pub fn new(amphi: &Path, profile: &str) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("amphi-demo-").tempdir()?;
        let stage = Self { amphi: amphi.to_owned(), directory };
        std::fs::create_dir(stage.mount_point())?;
        stage.amphi(&["mkfs", &path_text(&stage.image()), "--fs", "bytefs", "--profile", profile])?;
        stage.mount()?;
        Ok(stage)
    }

    /// The image.
    pub fn image(&self) -> PathBuf {
        self.directory.path().join("ssd.img")
    }

    /// Where it is mounted.
    pub fn mount_point(&self) -> PathBuf {
        self.directory.path().join("mount")
    }

    /// A file beside the mount: not on the storage under test.
    pub fn outside(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Mounts the image, after a crash too.
    pub fn mount(&self) -> Result<()> {
        self.amphi(&["mount", &path_text(&self.image()), &path_text(&self.mount_point())]).map(drop)
    }

    /// Unmounts; everything is on the device afterwards.
    pub fn unmount(&self) -> Result<()> {
        self.amphi(&["umount", &path_text(&self.mount_point())]).map(drop)
    }

    /// Checks the unmounted image: an error if anything is wrong.
    pub fn fsck(&self) -> Result<()> {
        self.amphi(&["fsck", &path_text(&self.image())]).map(drop)
    }

    /// The device's counters.
    pub fn stats(&self) -> Result<Value> {
        self.json("stats")
    }

    /// Kills the daemon as `kill -9` does.
    pub fn kill(&self) -> Result<()> {
        let pid = self.json("info")?["pid"].as_u64().context("`amphi info` names no daemon")?;
        step::output(Command::new("kill").arg("-KILL").arg(pid.to_string()))?;
        // A process that nobody waits for stays as a zombie, with an empty command line.
        let command_line = format!("/proc/{pid}/cmdline");
        let deadline = Instant::now() + Duration::from_secs(60);
        while std::fs::read(&command_line).is_ok_and(|line| !line.is_empty()) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Cuts the device's power under the mounted file system.
    pub fn cut_power(&self, seed: u64) -> Result<()> {
        self.amphi(&["power-cut", &path_text(&self.mount_point()), "--seed", &seed.to_string()]).map(drop)
    }

    /// Unmounts for good.
    pub fn close(&self) -> Result<()> {
        self.unmount()
    }

    fn json(&self, subcommand: &str) -> Result<Value> {
        let text = self.amphi(&[subcommand, &path_text(&self.mount_point()), "--json"])?;
        serde_json::from_str(&text).with_context(|| format!("`amphi {subcommand} --json` printed no JSON"))
    }

    fn amphi(&self, arguments: &[&str]) -> Result<String> {
        step::output(Command::new(&self.amphi).args(arguments))
    }

    fn is_mounted(&self) -> bool {
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mount_point = path_text(&self.mount_point());
        table.lines().any(|line| line.split(' ').nth(4) == Some(&mount_point))
    }

    /// Takes the mount away, gently if that works.
    fn clear(&self) -> Result<()> {
        if self.is_mounted() && self.unmount().is_err() {
            let mount_point = self.mount_point();
            let detached = step::output(Command::new("umount").arg("-l").arg(&mount_point))
                .or_else(|_| step::output(Command::new("fusermount3").arg("-uz").arg(&mount_point)));
            if let Err(error) = detached {
                bail!("{} is still mounted: {error:#}", mount_point.display());
            }
        }
        Ok(())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Err(error) = self.clear() {
            eprintln!("xtask: {error:#}");
            self.directory.disable_cleanup(true);
        }
    }
}

/// A path as an argument. The stage's own paths are plain.
fn path_text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
