//! Why a value of ours differs from the published one, told from the counters of the cells behind it.

use super::cell::CellResult;
use super::system::System;

/// What each of two file systems does for an operation, in a sentence each.
pub(super) fn from_counters(pair: [(System, &CellResult); 2]) -> String {
    let [base, ours] = pair;
    if base.0 == ours.0 {
        return one(ours);
    }
    format!("{} {}", one(base), one(ours))
}

fn one((system, result): (System, &CellResult)) -> String {
    let counters = &result.counters;
    let each = |count: u64| count as f64 / result.operations.max(1) as f64;
    let commands =
        |path: &str| each(counters.host.iter().filter(|t| t.path == path).map(|t| t.commands).sum());
    let bytes = |direction: &str| each(counters.bytes(direction, |_| true));
    let slowest = result
        .latencies
        .iter()
        .max_by(|a, b| (a.mean_ns * a.count as f64).total_cmp(&(b.mean_ns * b.count as f64)));
    let mut told = format!(
        "{}, for an operation: {:.2} block and {:.2} byte writes of {:.0} B together, {:.2} block reads of {:.0} B, {:.3} flushes, {:.3} commits, {:.0} B programmed to and {:.0} B read from flash.",
        system.title(),
        commands("block-write"),
        commands("byte-write"),
        bytes("write"),
        commands("block-read"),
        bytes("read"),
        each(counters.flushes),
        each(counters.commits),
        each(counters.flash_written()),
        each(counters.flash_read()),
    );
    if let Some(slowest) = slowest {
        let all: f64 = result.latencies.iter().map(|latency| latency.mean_ns * latency.count as f64).sum();
        told += &format!(
            " Of the threads' time {:.0} % is spent in {}, {:.1} us each.",
            slowest.mean_ns * slowest.count as f64 * 100.0 / all.max(1.0),
            slowest.operation,
            slowest.mean_ns / 1e3,
        );
    }
    told
}
