//! What a run found: as JSON, as a table, and as a figure.

use hdrhistogram::Histogram;
use serde::Serialize;

use super::counters::Counters;
use super::dilation::Calibration;
use crate::figure::{self, Bar, Detail, Figure, Group};
use crate::workload::{LatencySummary, Outcome};

/// Version of the JSON: another number if a field goes away or changes its meaning.
pub const SCHEMA: u32 = 1;

/// A whole run. Times are the device's: real time divided by the dilation.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The SSDs' profile.
    pub profile: String,
    /// Seed of the workloads.
    pub seed: u64,
    /// Share of the published number of files.
    pub scale: f64,
    /// Whether somebody ended the run early.
    pub interrupted: bool,
    /// What the export costs.
    pub calibration: Calibration,
    /// One entry for each workload.
    pub workloads: Vec<Workload>,
}

/// One workload on all file systems.
#[derive(Clone, Debug, Serialize)]
pub struct Workload {
    /// Its name.
    pub name: String,
    /// One line for people.
    pub description: String,
    /// Threads.
    pub threads: usize,
    /// One entry for each file system.
    pub cells: Vec<Cell>,
}

/// One workload on one file system. Traffic is counted from the first operation until everything is durable.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Cell {
    /// The file system.
    pub name: String,
    /// Operations on files.
    pub operations: u64,
    /// Operations a second.
    pub operations_per_second: f64,
    /// Median of all operations, ns.
    pub p50_ns: u64,
    /// 99 of 100 operations took at most this, ns.
    pub p99_ns: u64,
    /// The same for each operation by itself.
    pub latencies: Vec<Latency>,
    /// `fsync` calls of the workload.
    pub fsyncs: u64,
    /// Flush commands at the SSD.
    pub flushes: u64,
    /// Bytes from host to SSD, on both paths.
    pub host_bytes_written: u64,
    /// Those of them that went as blocks.
    pub block_bytes_written: u64,
    /// Block write commands.
    pub block_writes: u64,
    /// Bytes from SSD to host, on both paths.
    pub host_bytes_read: u64,
    /// Bytes programmed to flash meanwhile. What the SSD's own memory still holds is not among them.
    pub flash_bytes_written: u64,
    /// Bytes read from flash meanwhile.
    pub flash_bytes_read: u64,
    /// Flash bytes written for each host byte written.
    pub write_amplification: f64,
    /// Host bytes written by structure; the kernel does not say what it writes, so its are all `other`.
    pub structures: Vec<StructureBytes>,
    /// Why there is nothing.
    pub failure: Option<String>,
}

/// How long one operation took.
#[derive(Clone, Debug, Serialize)]
pub struct Latency {
    /// The operation.
    pub operation: &'static str,
    /// How many.
    pub count: u64,
    /// The mean, ns.
    pub mean_ns: f64,
    /// The median, ns.
    pub p50_ns: u64,
    /// 99 of 100 took at most this, ns.
    pub p99_ns: u64,
}

/// Bytes written for one structure.
#[derive(Clone, Debug, Serialize)]
pub struct StructureBytes {
    /// The structure.
    pub structure: String,
    /// Bytes.
    pub bytes: u64,
}

impl Cell {
    /// Sums a run up.
    pub(super) fn of(name: &str, outcome: &Outcome, counted: &Counters, dilation: f64) -> Self {
        let device_ns = |ns: u64| (ns as f64 / dilation).round() as u64;
        let mut names: Vec<&'static str> =
            outcome.steps.iter().filter(|step| step.counts).map(|step| step.operation).collect();
        names.sort_unstable();
        names.dedup();
        let latency = |operation| {
            let LatencySummary { count, mean_ns, p50_ns, p99_ns, .. } = outcome.latency(operation);
            let (p50_ns, p99_ns) = (device_ns(p50_ns), device_ns(p99_ns));
            Latency { operation, count, mean_ns: mean_ns / dilation, p50_ns, p99_ns }
        };
        let latencies: Vec<_> = names.into_iter().map(latency).collect();
        let mut all: Option<Histogram<u64>> = None;
        for step in outcome.steps.iter().filter(|step| step.counts) {
            match &mut all {
                // Histograms of one make can be added.
                Some(all) => drop(all.add(&step.latency)),
                None => all = Some(step.latency.clone()),
            }
        }
        let all = all.map(|all| LatencySummary::of(&all)).unwrap_or_default();
        let structures = counted.structures.iter().filter(|(_, bytes)| **bytes > 0);
        Self {
            name: name.to_owned(),
            operations: outcome.operations,
            operations_per_second: outcome.operations_per_second() * dilation,
            p50_ns: device_ns(all.p50_ns),
            p99_ns: device_ns(all.p99_ns),
            fsyncs: latencies.iter().filter(|each| each.operation == "fsync").map(|each| each.count).sum(),
            latencies,
            flushes: counted.flushes,
            host_bytes_written: counted.written,
            block_bytes_written: counted.block_written,
            block_writes: counted.block_writes,
            host_bytes_read: counted.read,
            flash_bytes_written: counted.flash_written,
            flash_bytes_read: counted.flash_read,
            write_amplification: counted.flash_written as f64 / counted.written.max(1) as f64,
            structures: structures
                .map(|(structure, bytes)| StructureBytes { structure: structure.clone(), bytes: *bytes })
                .collect(),
            failure: None,
        }
    }

    /// What could not be measured.
    pub(super) fn failed(name: &str, reason: &str) -> Self {
        Self { name: name.to_owned(), failure: Some(reason.to_owned()), ..Self::default() }
    }

    /// The head of [`text`](Self::text).
    #[must_use]
    pub const fn head() -> &'static str {
        "                    ops/s   p50 us   p99 us  fsync p50  fsync p99   fsyncs  flushes  written MB  of it blocks  read MB  flash MB    WAF"
    }

    /// One line of the table.
    #[must_use]
    pub fn text(&self) -> String {
        if let Some(failure) = &self.failure {
            return format!("{:<15} not available: {failure}", self.name);
        }
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        let micros = |ns: u64| ns as f64 / 1e3;
        let fsync = self.latencies.iter().find(|latency| latency.operation == "fsync");
        let fsync = |ns: fn(&Latency) -> u64| {
            fsync.map_or_else(|| "-".to_owned(), |latency| format!("{:.1}", micros(ns(latency))))
        };
        format!(
            "{:<15} {:>9.0} {:>8.2} {:>8.1} {:>10} {:>10} {:>8} {:>8} {:>11.2} {:>13.2} {:>8.2} {:>9.2} {:>6.2}",
            self.name,
            self.operations_per_second,
            micros(self.p50_ns),
            micros(self.p99_ns),
            fsync(|latency| latency.p50_ns),
            fsync(|latency| latency.p99_ns),
            self.fsyncs,
            self.flushes,
            megabytes(self.host_bytes_written),
            megabytes(self.block_bytes_written),
            megabytes(self.host_bytes_read),
            megabytes(self.flash_bytes_written),
            self.write_amplification
        )
    }

    /// Host traffic by structure, where that is known.
    #[must_use]
    pub fn structures_text(&self) -> Option<String> {
        let is_known = self.structures.iter().any(|each| each.structure != "other");
        let list = self.structures.iter();
        let list = list.map(|each| format!("{} {:.2}", each.structure, each.bytes as f64 / 1e6));
        is_known.then(|| format!("{:<15} written, MB: {}", self.name, list.collect::<Vec<_>>().join(", ")))
    }
}

impl Report {
    /// The run as a figure: throughput of each file system on each workload.
    #[must_use]
    pub fn figure(&self, command: &str) -> Figure {
        let calibration = &self.calibration;
        Figure {
            schema: figure::SCHEMA,
            name: "kernel".to_owned(),
            title: "The kernel's file systems beside ByteFS on equal emulated SSDs".to_owned(),
            question: "What does the same workload reach on ext4, XFS and Btrfs over the SSD's block side, and on ByteFS?"
                .to_owned(),
            claim: "Nothing was published of these file systems on this SSD through this export.".to_owned(),
            claim_row: String::new(),
            command: command.to_owned(),
            seed: self.seed,
            scale: self.scale,
            unit: "operations/s".to_owned(),
            logarithmic: false,
            method: format!(
                "Real programs' system calls in real time, the device's times multiplied by {:.0}, all times divided by it again. The export's own share of a \
                 4 KiB write with a flush is {:.1} % then ({:.0} us on a device without delays). Profile {}; the kernel's file systems run on the page-cache \
                 firmware, ByteFS on the write log.",
                calibration.dilation,
                calibration.overhead * 100.0,
                calibration.export_ns as f64 / 1e3,
                self.profile
            ),
            groups: self.workloads.iter().map(Workload::group).collect(),
            refused: Vec::new(),
            differences: Vec::new(),
            latencies: Vec::new(),
        }
    }
}

impl Workload {
    fn group(&self) -> Group {
        let measured = self.cells.iter().filter(|cell| cell.failure.is_none());
        Group { label: self.name.clone(), bars: measured.map(Cell::bar).collect() }
    }
}

impl Cell {
    fn bar(&self) -> Bar {
        let detail = |name: &str, value: f64, unit: &str| Detail {
            name: name.to_owned(),
            value,
            unit: unit.to_owned(),
        };
        Bar {
            series: self.name.clone(),
            ours: self.operations_per_second,
            unit: None,
            published: None,
            note: None,
            details: vec![
                detail("p50", self.p50_ns as f64 / 1e3, "us"),
                detail("p99", self.p99_ns as f64 / 1e3, "us"),
                detail("fsync calls", self.fsyncs as f64, ""),
                detail("flush commands", self.flushes as f64, ""),
                detail("host to SSD", self.host_bytes_written as f64 / 1e6, "MB"),
                detail("SSD to host", self.host_bytes_read as f64 / 1e6, "MB"),
                detail("written to flash", self.flash_bytes_written as f64 / 1e6, "MB"),
                detail("write amplification", self.write_amplification, ""),
            ],
        }
    }
}
