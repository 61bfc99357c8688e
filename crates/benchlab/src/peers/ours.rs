//! ByteFS on an emulated SSD without delays: in this process, and mounted by a daemon of its own.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use amphi_fs_bytefs::{ByteFs, FormatOptions, MountOptions};
use amphi_ssd::{Profile, Ssd};
use anyhow::{Context, Result, bail};

use super::workspace::{Workspace, text};
use crate::library::Library;

/// Bytes of each SSD. Memory is used as it is written.
const SSD_BYTES: u64 = 4 << 30;

/// ByteFS as a library.
///
/// # Errors
/// It cannot be made.
pub fn library() -> Result<Library> {
    let device = Arc::new(Ssd::in_memory(&Profile::named("free")?, SSD_BYTES));
    ByteFs::format(&*device, &FormatOptions::default())?;
    Ok(Library::new(Arc::new(ByteFs::mount(device, MountOptions::default())?)))
}

/// A mount of ours, served by another process as any mount is. Unmounted when dropped.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    directory: PathBuf,
}

impl Daemon {
    /// Makes an image in memory and mounts it with the program `amphi`.
    ///
    /// # Errors
    /// What the program complains of.
    pub fn new(workspace: &Workspace, amphi: &Path) -> Result<Self> {
        let directory = workspace.directory("bytefs")?;
        let image = workspace.path("bytefs.img");
        let made = Command::new(amphi)
            .args(["mkfs", "--profile", "free", "--size", &SSD_BYTES.to_string(), text(&image)?])
            .output()
            .context("amphi cannot be run")?;
        if !made.status.success() {
            bail!("{}", String::from_utf8_lossy(&made.stderr).trim());
        }
        let mut command = dying_with_us(amphi);
        command.args(["mount", "--free", "--foreground", text(&image)?, text(&directory)?]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut daemon = Self { child: command.spawn().context("amphi cannot be run")?, directory };
        // Its first word means that the mount can be used; no word, that it cannot.
        let mut first = [0];
        if daemon.child.stdout.as_mut().map_or(Ok(0), |stdout| stdout.read(&mut first))? == 0 {
            let mut complaint = String::new();
            if let Some(stderr) = daemon.child.stderr.as_mut() {
                stderr.read_to_string(&mut complaint)?;
            }
            bail!("{}", complaint.trim());
        }
        Ok(daemon)
    }

    /// Where it is mounted.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }
}

/// A command that is killed when we are, where the system can promise that.
fn dying_with_us(program: &Path) -> Command {
    if Command::new("setpriv").arg("--version").output().is_err() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // SIGTERM unmounts; the image goes with the workspace.
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id() as i32)
            && matches!(self.child.try_wait(), Ok(None))
        {
            // It may end by itself in this moment.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.child.wait();
    }
}
