//! What an idle processor of a virtual machine does while a request is served on another one.
//!
//! Halting leaves the machine: whoever wakes the processor again waits for the hypervisor, for longer than
//! most requests take, and whether that happens depends on where the scheduler has put two threads. The
//! guest's governor `haltpoll` therefore polls for a while before it halts; the kernel's default is 200 µs,
//! but hypervisors may boot guests with none. Measurements of requests between processes then scatter by
//! three and more.

use std::path::Path;

use anyhow::{Context, Result};

use crate::parameter::{self, Changed};

const GOVERNOR: &str = "/sys/devices/system/cpu/cpuidle/current_governor";
const PARAMETER: &str = "/sys/module/haltpoll/parameters/guest_halt_poll_ns";
/// The kernel's own default, in ns.
const DEFAULT_NS: &str = "200000";

/// How long idle processors poll before they halt, in ns; none if the kernel's governor is another one than
/// `haltpoll`.
#[must_use]
pub fn polling_ns() -> Option<u64> {
    let governor = parameter::read(Path::new(GOVERNOR)).ok()?;
    if governor != "haltpoll" {
        return None;
    }
    parameter::read(Path::new(PARAMETER)).ok()?.parse().ok()
}

/// Has idle processors poll as the kernel's default says, until what is returned is dropped.
///
/// # Errors
/// The kernel has another governor, or only root may.
pub fn begin_polling() -> Result<Changed> {
    polling_ns().context(
        "idle processors are not the governor haltpoll's here: there is nothing to set, leave --poll-idle out",
    )?;
    Changed::begin(Path::new(PARAMETER), DEFAULT_NS, "--poll-idle")
}
