//! What an idle processor of a virtual machine does while a request is served on another one.
//!
//! Halting leaves the machine: whoever wakes the processor again waits for the hypervisor, for longer than most requests take, and whether that happens depends on where the
//! scheduler has put two threads. The guest's governor `haltpoll` therefore polls for a while before it halts; the kernel's default is 200 µs, but hypervisors may boot
//! guests with none. Measurements of requests between processes then scatter by three and more.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

const GOVERNOR: &str = "/sys/devices/system/cpu/cpuidle/current_governor";
const PARAMETER: &str = "/sys/module/haltpoll/parameters/guest_halt_poll_ns";
/// The kernel's own default, in ns.
const DEFAULT_NS: u64 = 200_000;

/// How long idle processors poll before they halt, in ns; none if the kernel's governor is another one than `haltpoll`.
#[must_use]
pub fn polling_ns() -> Option<u64> {
    let governor = std::fs::read_to_string(GOVERNOR).ok()?;
    if governor.trim() != "haltpoll" {
        return None;
    }
    read(Path::new(PARAMETER)).ok()
}

fn read(parameter: &Path) -> Result<u64> {
    let text = std::fs::read_to_string(parameter)
        .with_context(|| format!("{} cannot be read", parameter.display()))?;
    text.trim().parse().with_context(|| format!("{} holds {text:?}", parameter.display()))
}

/// Idle processors poll as the kernel's default says, until this is dropped.
#[derive(Debug)]
pub struct IdlePolling {
    parameter: PathBuf,
    before_ns: u64,
}

impl IdlePolling {
    /// Has them poll.
    ///
    /// # Errors
    /// The kernel has another governor, or only root may.
    pub fn begin() -> Result<Self> {
        polling_ns().context("idle processors are not the governor haltpoll's here: there is nothing to set, leave --poll-idle out")?;
        Self::at(PathBuf::from(PARAMETER))
    }

    fn at(parameter: PathBuf) -> Result<Self> {
        let before_ns = read(&parameter)?;
        std::fs::write(&parameter, DEFAULT_NS.to_string())
            .with_context(|| format!("{} cannot be written: --poll-idle needs root", parameter.display()))?;
        Ok(Self { parameter, before_ns })
    }
}

impl Drop for IdlePolling {
    fn drop(&mut self) {
        if let Err(cause) = std::fs::write(&self.parameter, self.before_ns.to_string()) {
            eprintln!(
                "amphi: {} stays at {DEFAULT_NS}, it was {}: {cause}",
                self.parameter.display(),
                self.before_ns
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_set_before_is_set_again() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let parameter = directory.path().join("guest_halt_poll_ns");
        std::fs::write(&parameter, "7\n").expect("a file");
        let polling = IdlePolling::at(parameter.clone()).expect("it can be written");
        assert_eq!(read(&parameter).expect("a number"), DEFAULT_NS);
        drop(polling);
        assert_eq!(read(&parameter).expect("a number"), 7);
    }
}
