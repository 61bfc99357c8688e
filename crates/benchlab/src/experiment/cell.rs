//! One cell of an experiment, a workload on a file system on a device, and its result; and what a cell begins
//! with: virtual time on its machine, and a device with its file system.

use std::collections::BTreeMap;
use std::sync::Arc;

use amphi_rt::Sim;
use amphi_ssd::{OpenOptions, Ssd};
use anyhow::{Result, anyhow};
use serde::{Deserialize, Serialize};

use super::counters::Counters;
use super::definition::Variation;
use super::machine::Machine;
use super::system::System;
use crate::workload::{LatencySummary, Outcome};

/// Operations below which a window says nothing: a rate would rest on a handful of them.
pub const OPERATIONS_MIN: u64 = 100;

/// What one cell runs. Two cells that are equal come to the same result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The personality.
    pub workload: String,
    /// Its parameters that are changed.
    pub parameters: BTreeMap<String, u64>,
    /// Threads in its largest group, if not as many as it says.
    pub threads: Option<usize>,
    /// The file system.
    pub system: System,
    /// The device's profile.
    pub profile: String,
    /// What is changed of the device.
    pub variation: Variation,
    /// Scale.
    pub scale: f64,
    /// Seed.
    pub seed: u64,
}

/// What a cell came to. All of it is virtual: it is the same on every machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellResult {
    /// Operations on files in the window that counts.
    pub operations: u64,
    /// Length of that window, ns.
    pub elapsed_ns: u64,
    /// Bytes that the workload read.
    pub bytes_read: u64,
    /// Bytes that the workload wrote.
    pub bytes_written: u64,
    /// What the device counted from the beginning of the window until a `sync` after its end.
    pub counters: Counters,
    /// How long operations took.
    pub latencies: Vec<OperationLatency>,
    /// Threads of the workload.
    pub threads: usize,
    /// What the file system counted in that time, by its own names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counted: BTreeMap<String, u64>,
    /// Bytes of device memory that a file system inside of the device has at the end of the window, by what
    /// they hold.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub device_memory: BTreeMap<String, u64>,
}

/// How long one operation took in the window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperationLatency {
    /// The operation.
    pub operation: String,
    /// How many.
    pub count: u64,
    /// The mean, ns.
    pub mean_ns: f64,
    /// The median, ns.
    pub p50_ns: u64,
    /// The 95th percentile, ns.
    pub p95_ns: u64,
    /// The 99th percentile, ns.
    pub p99_ns: u64,
    /// The 99.9th percentile, ns.
    pub p999_ns: u64,
}

impl CellResult {
    /// Sums a run up, with what the device counted meanwhile.
    pub(super) fn new(
        threads: usize,
        outcome: &Outcome,
        counters: Counters,
        counted: BTreeMap<String, u64>,
        device_memory: BTreeMap<String, u64>,
    ) -> Self {
        let mut operations: Vec<&str> =
            outcome.steps.iter().filter(|step| step.counts).map(|step| step.operation).collect();
        operations.sort_unstable();
        operations.dedup();
        let latency = |operation: &str| {
            let LatencySummary { count, mean_ns, p50_ns, p95_ns, p99_ns, p999_ns, .. } =
                outcome.latency(operation);
            let operation = operation.to_owned();
            OperationLatency { operation, count, mean_ns, p50_ns, p95_ns, p99_ns, p999_ns }
        };
        Self {
            operations: outcome.operations,
            elapsed_ns: outcome.elapsed_ns,
            bytes_read: outcome.bytes_read,
            bytes_written: outcome.bytes_written,
            counters,
            latencies: operations.into_iter().map(latency).filter(|latency| latency.count > 0).collect(),
            threads,
            counted,
            device_memory,
        }
    }

    /// Operations a second.
    #[must_use]
    pub fn operations_per_second(&self) -> f64 {
        self.operations as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }
}

/// Virtual time that a run may take: days, since how long it takes is its own business.
pub(super) const TIME_LIMIT_NS: u64 = 30 * 86_400 * 1_000_000_000;

/// Does some of a cell's work in virtual time, on its machine.
pub(super) fn simulate<T>(cell: &Cell, machine: &Machine, work: impl FnOnce() -> Result<T>) -> Result<T> {
    // No watchdog: a batch of work may take a busy machine seconds.
    let sim =
        Sim::new(cell.seed).host(machine.host.clone()).time_limit_ns(TIME_LIMIT_NS).blocking_limit(None);
    sim.try_run(work).map_err(|failure| anyhow!("{failure}"))?
}

/// A new device with the cell's file system.
pub(super) fn format(cell: &Cell, machine: &Machine) -> Result<Arc<Ssd>> {
    let ssd = Ssd::try_in_memory(&machine.device, machine.capacity_bytes, &OpenOptions::default())?;
    let ssd = Arc::new(ssd);
    cell.system.format(&ssd, machine)?;
    Ok(ssd)
}
