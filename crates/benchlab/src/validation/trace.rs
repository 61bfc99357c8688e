//! What the kernel's ext4 and jbd2 did in each step, as its tracepoints tell: commits, write-back, the two
//! calls of a `sync`, requests of the block layer. An instance of tracefs of our own, which goes when this is
//! dropped, so that nobody else's tracing is disturbed.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Where the kernel has its tracing, unless it is mounted elsewhere.
const TRACING: &str = "/sys/kernel/tracing";

/// What is written down.
const EVENTS: [&str; 14] = [
    "jbd2/jbd2_start_commit",
    "jbd2/jbd2_commit_locking",
    "jbd2/jbd2_commit_flushing",
    "jbd2/jbd2_commit_logging",
    "jbd2/jbd2_end_commit",
    "jbd2/jbd2_update_log_tail",
    "ext4/ext4_sync_fs",
    "ext4/ext4_sync_file_enter",
    "ext4/ext4_sync_file_exit",
    "ext4/ext4_writepages",
    "ext4/ext4_writepages_result",
    "ext4/ext4_journal_start_reserved",
    "block/block_rq_issue",
    "block/block_rq_complete",
];

/// A device's tracing, into a file.
#[derive(Debug)]
pub(super) struct Trace {
    instance: PathBuf,
    into: File,
}

impl Trace {
    /// Traces the file system on `device`; what is traced goes to the end of `into`.
    ///
    /// # Errors
    /// There is no tracefs, or it lacks the events.
    pub(super) fn start(device: &Path, into: &Path) -> Result<Self> {
        let number = std::fs::metadata(device)?.rdev();
        let into = OpenOptions::new().create(true).append(true).open(into);
        let into = into.context("the trace cannot be written")?;
        let instance = Path::new(TRACING).join(format!("instances/amphi-{}", std::process::id()));
        let none = "there is no tracefs: mount -t tracefs nodev /sys/kernel/tracing";
        std::fs::create_dir(&instance).context(none)?;
        let trace = Self { instance, into };
        trace.set("buffer_size_kb", "32768")?;
        // The kernel's own number of a device, which is not that of stat(2).
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let filter = format!("dev == {}", (u64::from(major) << 20) | u64::from(minor));
        for event in EVENTS {
            trace.set(&format!("events/{event}/filter"), &filter)?;
            trace.set(&format!("events/{event}/enable"), "1")?;
        }
        Ok(trace)
    }

    fn set(&self, file: &str, value: &str) -> Result<()> {
        std::fs::write(self.instance.join(file), value).with_context(|| format!("tracing: {file}"))
    }

    /// Forgets what has been traced.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) fn clear(&self) -> Result<()> {
        self.set("trace", "\n")
    }

    /// Writes down what has been traced since it was cleared.
    ///
    /// # Errors
    /// It cannot be read or written.
    pub(super) fn take(&mut self, step: &str) -> Result<()> {
        writeln!(self.into, "# {step}")?;
        for line in BufReader::new(File::open(self.instance.join("trace"))?).lines() {
            let line = line?;
            if !line.starts_with('#') {
                writeln!(self.into, "{line}")?;
            }
        }
        Ok(())
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        // One that stays costs memory and nothing else.
        let _ = std::fs::remove_dir(&self.instance);
    }
}
