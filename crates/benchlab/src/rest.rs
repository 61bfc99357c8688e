//! What a daemon takes whose programs do nothing, or little: processor time while they are connected and
//! idle, and what one call every now and then adds.

use std::fs;
use std::path::Path;

use amphi_rt::time;
use anyhow::{Context, Result, ensure};
use serde::Serialize;

use crate::interleave::Seat;
use crate::operation::Operation;

/// How long nothing is asked, ns.
const IDLE_NS: u64 = 1_000_000_000;
/// Batches of one call, and how long nothing is asked before each, ns.
const CALLS: u64 = 50;
const PAUSE_NS: u64 = 10_000_000;
/// What is asked: a write and an `fsync`, two commands.
pub(crate) const ASKED: Operation = Operation::OverwriteSync(64);

/// What one daemon took.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rest {
    /// The peer that it serves.
    pub peer: String,
    /// Processor time a second with its programs connected and idle, ns.
    pub idle_ns_per_second: f64,
    /// Processor time for each write with `fsync` of 64 B after 10 ms without one, ns: carrying it out, and
    /// looking for more.
    pub ns_per_call: f64,
}

/// Whether this kernel counts the processor time of each thread in ns.
pub(crate) fn is_counted() -> bool {
    Path::new("/proc/thread-self/schedstat").exists()
}

/// Has the processes of a seat be idle, and then make a call every now and then, and looks at what the
/// process `daemon` and its children take meanwhile.
///
/// # Errors
/// The kernel does not say, or a call fails.
pub(crate) fn of(peer: &str, seat: &mut Seat, daemon: u32) -> Result<Rest> {
    // What the last operation has left to be done in the background is done now.
    time::sleep_ns(IDLE_NS / 4);
    let begun = (time::now_ns(), busy_ns(daemon)?);
    time::sleep_ns(IDLE_NS);
    let idle = busy_ns(daemon)?.saturating_sub(begun.1);
    let idle_ns_per_second = idle as f64 * 1e9 / (time::now_ns() - begun.0) as f64;
    let before = busy_ns(daemon)?;
    for _ in 0..CALLS {
        time::sleep_ns(PAUSE_NS);
        seat.batch(ASKED, 1, 1)?;
    }
    // The last one's looking around belongs to it.
    time::sleep_ns(PAUSE_NS);
    let ns_per_call = busy_ns(daemon)?.saturating_sub(before) as f64 / CALLS as f64;
    Ok(Rest { peer: peer.to_owned(), idle_ns_per_second, ns_per_call })
}

/// Processor time of all threads of a process and of its children, ns.
fn busy_ns(process: u32) -> Result<u64> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).context("the daemon has ended")?;
    let mut busy = 0;
    let mut threads = 0;
    for task in tasks {
        let task = task?.path();
        // A thread may end meanwhile.
        let Ok(said) = fs::read_to_string(task.join("schedstat")) else { continue };
        let first = said.split_whitespace().next().context("the kernel does not count processor time")?;
        busy += first.parse::<u64>()?;
        threads += 1;
        for child in fs::read_to_string(task.join("children")).unwrap_or_default().split_whitespace() {
            busy += busy_ns(child.parse()?)?;
        }
    }
    ensure!(threads > 0, "the kernel does not say what processor time process {process} took");
    Ok(busy)
}

/// What was found, as text.
#[must_use]
pub fn text(rests: &[Rest]) -> String {
    let line = |rest: &Rest| {
        let (idle, call) = (rest.idle_ns_per_second / 1e7, rest.ns_per_call / 1e3);
        format!(
            "{:<11} idle: {idle:.3} % of one processor; a write with fsync of 64 B each 10 ms: {call:.1} us of processor time\n",
            rest.peer
        )
    };
    rests.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_process_takes_is_seen() {
        if !is_counted() {
            println!("SKIPPED: this kernel does not count threads' processor time");
            return;
        }
        let own = std::process::id();
        let before = busy_ns(own).expect("the kernel says");
        // It takes processor time by asking; what has been used since the last tick is counted at the next.
        while busy_ns(own).expect("the kernel says") < before + 1_000_000 {
            std::hint::spin_loop();
        }
        assert!(busy_ns(u32::MAX).is_err());
    }
}
