//! A process that serves a mount, as any FUSE file system has: measured beside each other, they all pay for
//! reaching another process.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

/// A mount and the process behind it. Unmounted when dropped.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    directory: PathBuf,
}

impl Daemon {
    /// Runs `program` with `arguments` until the mount on `directory` can be used: it says so with a word on
    /// standard output, or complains and ends.
    ///
    /// # Errors
    /// What the program complains of.
    pub fn new(program: &Path, arguments: &[&str], directory: PathBuf) -> Result<Self> {
        let mut command = dying_with_us(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().with_context(|| format!("{} cannot be run", program.display()))?;
        let mut daemon = Self { child, directory };
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

    /// The process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

/// A command that is killed when we are, where the system can promise that.
pub fn dying_with_us(program: &Path) -> Command {
    if Command::new("setpriv").arg("--version").output().is_err() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // SIGTERM unmounts.
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id() as i32)
            && matches!(self.child.try_wait(), Ok(None))
        {
            // It may end by itself in this moment.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.child.wait();
    }
}
