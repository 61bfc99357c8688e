//! A trace replayed on a scaled machine: from an empty device to counters, as a [`cell`] is run.

use std::collections::BTreeMap;
use std::sync::Arc;

use amphi_rt::Sim;
use amphi_ssd::{OpenOptions, Ssd};
use amphi_trace::Trace;
use anyhow::{Context, Result, anyhow};

use super::cell::{self, CellResult};
use super::counters::Counters;
use super::definition::Variation;
use super::machine::Machine;
use super::system::System;
use crate::replay;

/// On what a trace is replayed.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The file system.
    pub system: System,
    /// The device's profile.
    pub profile: String,
    /// Scale of the machine. The trace itself is replayed whole.
    pub scale: f64,
    /// Seed.
    pub seed: u64,
    /// In real time: the device takes the time that its profile says, and software the time that it takes.
    pub real_time: bool,
}

/// Replays a trace on an empty file system. What it has before the recording began is made first, and the
/// file system mounted anew before the rest is measured. Besides the result, the number of operations that
/// the file system does not offer.
///
/// # Errors
/// The machine does not exist, or an operation failed.
pub fn run(trace: &Trace, settings: &Settings) -> Result<(CellResult, u64)> {
    let machine = Machine::new(&settings.profile, settings.system, settings.scale, &Variation::default())
        .map_err(|message| anyhow!("{message}"))?;
    if settings.real_time {
        return on(trace, settings, &machine);
    }
    let sim = Sim::new(settings.seed)
        .host(machine.host.clone())
        .time_limit_ns(cell::TIME_LIMIT_NS)
        .blocking_limit(None);
    sim.try_run(|| on(trace, settings, &machine)).map_err(|failure| anyhow!("{failure}"))?
}

fn on(trace: &Trace, settings: &Settings, machine: &Machine) -> Result<(CellResult, u64)> {
    let ssd = Ssd::try_in_memory(&machine.device, machine.capacity_bytes, &OpenOptions::default())?;
    let ssd = Arc::new(ssd);
    settings.system.format(&ssd, machine)?;
    let mut mounted = settings.system.mount(&ssd, machine)?;
    replay::run(&*mounted.file_system(), &machine.costs, &trace.before, 0)
        .context("what was there before the recording cannot be made")?;
    // The run begins with nothing in the host's memory.
    mounted.unmount()?;
    mounted = settings.system.mount(&ssd, machine)?;
    let begun = Counters::of(&ssd.stats());
    let fs = mounted.file_system();
    let first = trace.before.len() as u64;
    let replayed = replay::run(&*fs, &machine.costs, &trace.operations, first)?;
    // What was left to be written later belongs to it.
    fs.sync()?;
    let counters = Counters::of(&ssd.stats()).since(&begun);
    let counted = mounted.counted();
    drop(fs);
    mounted.unmount()?;
    Ok((CellResult::new(1, &replayed.outcome, counters, counted, BTreeMap::new()), replayed.not_offered))
}
