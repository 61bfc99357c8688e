//! One cell of an experiment: a workload on a file system on a device, in virtual time, from an empty device to counters.

use std::collections::BTreeMap;
use std::sync::Arc;

use amphi_rt::Sim;
use amphi_rt::sync::Mutex;
use amphi_ssd::{OpenOptions, Ssd};
use anyhow::{Context, Result, anyhow};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::counters::Counters;
use super::definition::Variation;
use super::loaded::{LoadedDevices, STORE};
use super::machine::Machine;
use super::system::System;
use crate::files::{Files, LibraryFiles};
use crate::workload::{LatencySummary, Outcome, Plan, Settings, prepare, preset, run as run_workload};
use crate::ycsb::{self, Ycsb};

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
    /// Operations a second.
    #[must_use]
    pub fn operations_per_second(&self) -> f64 {
        self.operations as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }
}

/// How fast a cell was simulated, which depends on the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Speed {
    /// Operations on files, warm-up included.
    pub operations: u64,
    /// Processor time of the workload's run, making its files not included, s. A `Sim` is one thread, so this is the time it takes on a core of its own, also where it
    /// shares one.
    pub seconds: f64,
}

/// Virtual time that a run may take: days, since how long it takes is its own business.
pub(super) const TIME_LIMIT_NS: u64 = 30 * 86_400 * 1_000_000_000;

/// Runs a cell. Cells that begin with the same records of YCSB share `loaded`.
///
/// # Errors
/// What it asks for does not exist, or the workload failed on the file system.
pub fn run(cell: &Cell, loaded: &LoadedDevices) -> Result<CellResult> {
    run_timed(cell, loaded).map(|(result, _)| result)
}

/// As [`run`], and how fast that was.
///
/// # Errors
/// As [`run`].
pub fn run_timed(cell: &Cell, loaded: &LoadedDevices) -> Result<(CellResult, Speed)> {
    let machine = Machine::new(&cell.profile, cell.system, cell.scale, &cell.variation)
        .map_err(|message| anyhow!("{message}"))?;
    let work = Work::of(cell)?;
    let measured = match &work {
        Work::Files(plan) => simulate(cell, &machine, || on_files(cell, &machine, plan)),
        Work::Store(workload) => {
            let ssd = loaded.copy_for(cell, &machine, workload)?;
            simulate(cell, &machine, || on_store(cell, &machine, workload, Arc::new(ssd)))
        }
    };
    let Measured { outcome, seconds, counters } = measured?;
    let speed = Speed { operations: outcome.operations_in_all, seconds };
    Ok((result(work.threads(), &outcome, counters), speed))
}

/// Does some of a cell's work in virtual time, on its machine.
pub(super) fn simulate<T>(cell: &Cell, machine: &Machine, work: impl FnOnce() -> Result<T>) -> Result<T> {
    // No watchdog: a batch of work may take a busy machine seconds.
    let sim =
        Sim::new(cell.seed).host(machine.host.clone()).time_limit_ns(TIME_LIMIT_NS).blocking_limit(None);
    sim.try_run(work).map_err(|failure| anyhow!("{failure}"))?
}

/// What a cell does.
enum Work {
    Files(Plan),
    Store(Ycsb),
}

impl Work {
    fn of(cell: &Cell) -> Result<Self> {
        if cell.workload.starts_with("ycsb-") {
            anyhow::ensure!(cell.parameters.is_empty(), "{} has no parameters", cell.workload);
            let workload = ycsb::preset(&cell.workload)?.scaled(cell.scale);
            return Ok(Self::Store(match cell.threads {
                Some(clients) => workload.with_clients(clients),
                None => workload,
            }));
        }
        let parameters: Vec<(String, u64)> =
            cell.parameters.iter().map(|(name, value)| (name.clone(), *value)).collect();
        let mut personality = preset(&cell.workload, &parameters)?.scaled(cell.scale);
        if let Some(threads) = cell.threads {
            personality = personality.with_threads(threads);
        }
        Ok(Self::Files(Plan::new(&personality)?))
    }

    fn threads(&self) -> usize {
        match self {
            Self::Files(plan) => plan.threads(),
            Self::Store(workload) => workload.store.clients,
        }
    }
}

/// Processor time that this thread has used, s: how long a simulation takes is not the simulation's business, so `rt` has no say in it.
fn processor_seconds() -> f64 {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}

/// A new device with the cell's file system.
pub(super) fn format(cell: &Cell, machine: &Machine) -> Result<Ssd> {
    let ssd = Ssd::try_in_memory(&machine.device, machine.capacity_bytes, &OpenOptions::default())?;
    cell.system.format(&ssd, machine)?;
    Ok(ssd)
}

/// What a workload's run came to.
struct Measured {
    outcome: Outcome,
    /// Processor time that it took.
    seconds: f64,
    /// What the device counted in the window.
    counters: Counters,
}

/// Makes the workload's files on a new device, and runs it on them.
fn on_files(cell: &Cell, machine: &Machine, plan: &Plan) -> Result<Measured> {
    let ssd = Arc::new(format(cell, machine)?);
    let settings = Settings { seed: cell.seed };
    let mounted = cell.system.mount(&ssd, machine)?;
    let prepared = prepare(&LibraryFiles::new(mounted.file_system(), machine.costs), plan, settings)
        .context("the workload's files cannot be made")?;
    mounted.unmount()?;
    on_mounted(cell, machine, &ssd, &|files, begin| {
        run_workload(&**files, &prepared, plan, settings, begin).context("the workload failed")
    })
}

/// Runs a workload on the store that was loaded before.
fn on_store(cell: &Cell, machine: &Machine, workload: &Ycsb, ssd: Arc<Ssd>) -> Result<Measured> {
    on_mounted(cell, machine, &ssd, &|files, begin| {
        let loaded = ycsb::open(Arc::clone(files), STORE, workload).context("the store cannot be opened")?;
        ycsb::run(&loaded, workload, Settings { seed: cell.seed }, begin).context("the workload failed")
    })
}

/// What is measured on mounted files. It calls its second argument when the window begins.
type Measurable<'a> = dyn Fn(&Arc<dyn Files>, &(dyn Fn() + Sync)) -> Result<Outcome> + 'a;

/// Mounts the file system, with nothing of it in the host's memory, measures `work` there, and unmounts.
fn on_mounted(cell: &Cell, machine: &Machine, ssd: &Arc<Ssd>, work: &Measurable<'_>) -> Result<Measured> {
    let mounted = cell.system.mount(ssd, machine)?;
    let files: Arc<dyn Files> = Arc::new(LibraryFiles::new(mounted.file_system(), machine.costs));
    let begun = Mutex::new(Counters::default());
    let begin = || *begun.lock() = Counters::of(&ssd.stats());
    let used = processor_seconds();
    let outcome = work(&files, &begin)?;
    let seconds = processor_seconds() - used;
    // What the workload left to be written later belongs to it.
    files.sync()?;
    let counters = Counters::of(&ssd.stats()).since(&begun.lock());
    drop(files);
    mounted.unmount()?;
    Ok(Measured { outcome, seconds, counters })
}

pub(super) fn result(threads: usize, outcome: &Outcome, counters: Counters) -> CellResult {
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
    CellResult {
        operations: outcome.operations,
        elapsed_ns: outcome.elapsed_ns,
        bytes_read: outcome.bytes_read,
        bytes_written: outcome.bytes_written,
        counters,
        latencies: operations.into_iter().map(latency).filter(|latency| latency.count > 0).collect(),
        threads,
    }
}
