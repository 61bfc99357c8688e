//! Devices with the records of YCSB on them, loaded once for all workloads that begin with the same records.
//!
//! What a device was like after loading does not depend on the workload that follows. So it is loaded once,
//! and every workload begins on a copy of its own, which is mounted anew: as if each had loaded its own
//! device, and with nothing in the host's memory, as every other workload begins.

use std::collections::BTreeMap;
use std::sync::Arc;

use amphi_rt::sync::Mutex;
use amphi_ssd::Ssd;
use anyhow::{Context, Result};

use super::cell::{Cell, format, simulate};
use super::machine::Machine;
use crate::files::{Files, LibraryFiles};
use crate::workload::Settings;
use crate::ycsb::{self, Ycsb};

/// The store's directory.
pub(super) const STORE: &str = "store";

/// Loaded devices. They are of no virtual time: all of it that loading took has gone by.
#[derive(Default)]
pub struct LoadedDevices {
    /// By what decides what is on them. Each has a lock of its own, which is held while it is loaded: who
    /// needs it too waits.
    devices: Mutex<BTreeMap<String, Slot>>,
}

type Slot = Arc<Mutex<Option<Ssd>>>;

impl LoadedDevices {
    /// A copy of the device that a cell's workload begins on.
    ///
    /// # Errors
    /// It cannot be loaded, or there is no memory.
    pub(super) fn copy_for(&self, cell: &Cell, machine: &Machine, workload: &Ycsb) -> Result<Ssd> {
        let slot = Arc::clone(self.devices.lock().entry(key(cell)?).or_default());
        let mut slot = slot.lock();
        let loaded = match &mut *slot {
            Some(loaded) => loaded,
            empty => empty.insert(load(cell, machine, workload)?),
        };
        // In virtual time, so that the seed decides the order of its hash maps too.
        simulate(cell, machine, || Ok(loaded.fork()?))
    }
}

/// What decides what is on a device: all of the cell but what is done afterwards.
fn key(cell: &Cell) -> Result<String> {
    // What is before the dash names the records.
    let records = cell.workload.split('-').next().unwrap_or_default().to_owned();
    let loading = Cell { workload: records, threads: None, ..cell.clone() };
    Ok(serde_json::to_string(&loading)?)
}

/// Makes the file system, loads the records, unmounts.
fn load(cell: &Cell, machine: &Machine, workload: &Ycsb) -> Result<Ssd> {
    simulate(cell, machine, || {
        let ssd = Arc::new(format(cell, machine)?);
        let mounted = cell.system.mount(&ssd, machine)?;
        let files: Arc<dyn Files> = Arc::new(LibraryFiles::new(mounted.file_system(), machine.costs));
        let loaded = ycsb::load(files, STORE, workload, Settings { seed: cell.seed });
        drop(loaded.context("the store cannot be loaded")?);
        mounted.unmount()?;
        // The copy has nothing left of this simulation: no task, no moment.
        Ok(ssd.fork()?)
    })
}
