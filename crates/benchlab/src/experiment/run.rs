//! Runs a cell: from an empty device, or a copy of a loaded one, to counters.

use std::collections::BTreeMap;
use std::sync::Arc;

use amphi_rt::sync::Mutex;
use amphi_ssd::Ssd;
use anyhow::{Context, Result, anyhow};
use rustix::time::{ClockId, clock_gettime};

use super::cell::{Cell, CellResult, format, simulate};
use super::counters::Counters;
use super::definition::HostCache;
use super::loaded::{LoadedDevices, STORE};
use super::machine::Machine;
use super::mounted::Mounted;
use crate::files::{Files, LibraryFiles};
use crate::gridgraph::Graph;
use crate::workload::{Outcome, Plan, Settings, prepare, preset, run as run_workload};
use crate::ycsb::{self, Ycsb};

/// How fast a cell was simulated, which depends on the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Speed {
    /// Operations on files, warm-up included.
    pub operations: u64,
    /// Processor time of the workload's run, making its files not included, s. A `Sim` is one thread, so this
    /// is the time it takes on a core of its own, also where it shares one.
    pub seconds: f64,
}

/// Runs a cell. Cells that begin with the same records of YCSB share `loaded`.
///
/// # Errors
/// What it asks for does not exist, or the workload failed on the file system.
pub fn cell(cell: &Cell, loaded: &LoadedDevices) -> Result<CellResult> {
    cell_timed(cell, loaded).map(|(result, _)| result)
}

/// As [`cell`], and how fast that was.
///
/// # Errors
/// As [`cell`].
pub fn cell_timed(cell: &Cell, loaded: &LoadedDevices) -> Result<(CellResult, Speed)> {
    let machine = Machine::new(&cell.profile, cell.system, cell.scale, &cell.variation)
        .map_err(|message| anyhow!("{message}"))?;
    let work = Work::of(cell)?;
    let measured = match &work {
        Work::Files(plan) => simulate(cell, &machine, || on_files(cell, &machine, plan)),
        Work::Grid(graph) => simulate(cell, &machine, || on_grid(cell, &machine, graph)),
        Work::Store(workload) => {
            let ssd = loaded.copy_for(cell, &machine, workload)?;
            simulate(cell, &machine, || on_store(cell, &machine, workload, Arc::new(ssd)))
        }
    };
    let Measured { outcome, seconds, counters, counted, device_memory } = measured?;
    let speed = Speed { operations: outcome.operations_in_all, seconds };
    Ok((CellResult::new(work.threads(), &outcome, counters, counted, device_memory), speed))
}

/// What a cell does.
enum Work {
    Files(Plan),
    Store(Ycsb),
    Grid(Graph),
}

impl Work {
    fn of(cell: &Cell) -> Result<Self> {
        if ycsb::is_of_a_store(&cell.workload) {
            anyhow::ensure!(cell.parameters.is_empty(), "{} has no parameters", cell.workload);
            let workload = ycsb::preset(&cell.workload)?.scaled(cell.scale);
            return Ok(Self::Store(match cell.threads {
                Some(clients) => workload.with_clients(clients),
                None => workload,
            }));
        }
        if let Some(graph) = Graph::named(&cell.workload) {
            anyhow::ensure!(cell.parameters.is_empty(), "{} has no parameters", cell.workload);
            return Ok(Self::Grid(graph.scaled(cell.scale)));
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
            Self::Grid(_) => 1,
        }
    }
}

/// Processor time that this thread has used, s: how long a simulation takes is not the simulation's business,
/// so `rt` has no say in it.
fn processor_seconds() -> f64 {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}

/// What a workload's run came to.
struct Measured {
    outcome: Outcome,
    /// Processor time that it took.
    seconds: f64,
    /// What the device counted in the window.
    counters: Counters,
    /// What the file system counted.
    counted: BTreeMap<String, u64>,
    /// What a file system inside of the device has in its memory at the end of the window.
    device_memory: BTreeMap<String, u64>,
}

/// Makes the workload's files on a new device, and runs it on them.
fn on_files(cell: &Cell, machine: &Machine, plan: &Plan) -> Result<Measured> {
    let ssd = format(cell, machine)?;
    let settings = Settings { seed: cell.seed };
    let mounted = cell.system.mount(&ssd, machine)?;
    let prepared = prepare(&LibraryFiles::new(mounted.file_system(), machine.costs), plan, settings)
        .context("the workload's files cannot be made")?;
    let mounted = made(cell, machine, &ssd, mounted)?;
    on_mounted(mounted, machine, &ssd, &|files, begin| {
        run_workload(&**files, &prepared, plan, settings, begin).context("the workload failed")
    })
}

/// Makes a graph's edges on a new device, and does to them what GridGraph does.
fn on_grid(cell: &Cell, machine: &Machine, graph: &Graph) -> Result<Measured> {
    let ssd = format(cell, machine)?;
    let mounted = cell.system.mount(&ssd, machine)?;
    graph.prepare(&LibraryFiles::new(mounted.file_system(), machine.costs))?;
    let mounted = made(cell, machine, &ssd, mounted)?;
    on_mounted(mounted, machine, &ssd, &|files, begin| graph.run(&**files, cell.seed, begin))
}

/// Runs a workload on the store that was loaded before.
fn on_store(cell: &Cell, machine: &Machine, workload: &Ycsb, ssd: Arc<Ssd>) -> Result<Measured> {
    on_mounted(cell.system.mount(&ssd, machine)?, machine, &ssd, &|files, begin| {
        let loaded = ycsb::open(Arc::clone(files), STORE, workload).context("the store cannot be opened")?;
        ycsb::run(&loaded, workload, Settings { seed: cell.seed }, begin).context("the workload failed")
    })
}

/// What is measured on mounted files. It calls its second argument when the window begins.
type Measurable<'a> = dyn Fn(&Arc<dyn Files>, &(dyn Fn() + Sync)) -> Result<Outcome> + 'a;

/// The file system once its files are made: mounted anew, with nothing of it in the host's memory, or as it
/// is with all of it on the device.
fn made(
    cell: &Cell,
    machine: &Machine,
    ssd: &Arc<Ssd>,
    mounted: Box<dyn Mounted>,
) -> Result<Box<dyn Mounted>> {
    match cell.variation.host_cache.unwrap_or_default() {
        HostCache::Cold => {
            mounted.unmount()?;
            cell.system.mount(ssd, machine)
        }
        HostCache::Warm => {
            mounted.file_system().sync()?;
            Ok(mounted)
        }
    }
}

/// Measures `work` on a mounted file system, and unmounts it.
fn on_mounted(
    mounted: Box<dyn Mounted>,
    machine: &Machine,
    ssd: &Arc<Ssd>,
    work: &Measurable<'_>,
) -> Result<Measured> {
    let files: Arc<dyn Files> = Arc::new(LibraryFiles::new(mounted.file_system(), machine.costs));
    let begun = Mutex::new((Counters::default(), BTreeMap::new()));
    let begin = || *begun.lock() = (Counters::of(&ssd.stats()), mounted.counted());
    let used = processor_seconds();
    let outcome = work(&files, &begin)?;
    let seconds = processor_seconds() - used;
    let device_memory = mounted.device_memory();
    // What the workload left to be written later belongs to it.
    files.sync()?;
    let (counters_before, counted_before) = &*begun.lock();
    let counters = Counters::of(&ssd.stats()).since(counters_before);
    let mut counted = mounted.counted();
    for (name, count) in &mut counted {
        *count -= counted_before.get(name).copied().unwrap_or(0);
    }
    drop(files);
    mounted.unmount()?;
    Ok(Measured { outcome, seconds, counters, counted, device_memory })
}
