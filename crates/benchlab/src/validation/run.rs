//! The same steps on both file systems, one after the other.

use std::path::{Path, PathBuf};

use amphi_fs_ext4like::DataMode;
use anyhow::{Context, Result};

use super::record::Traffic;
use super::report::{Report, Row, SCHEMA};
use super::rivals::Rival;
use super::steps::{Bench, Step, macro_steps, micro, ycsb_step};
use super::trace::Trace;
use crate::peers::Workspace;
use crate::workload::Personality;
use crate::ycsb::Ycsb;

/// How to run it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The program that exports.
    pub amphi: PathBuf,
    /// Workloads, scaled, each of a certain number of operations.
    pub workloads: Vec<Personality>,
    /// Workloads of the store, as well.
    pub ycsb: Vec<Ycsb>,
    /// Whether file data go through the journal, on both.
    pub journal_data: bool,
    /// How often all of it is done, each time on new SSDs and from another place of the log on.
    pub rounds: usize,
    /// Where what the kernel's ext4 does in the first round is traced to.
    pub trace: Option<PathBuf>,
    /// Decides what the workloads leave to chance.
    pub seed: u64,
}

/// Runs all steps on the kernel's ext4 and on the baseline, and compares what reached their SSDs.
///
/// # Errors
/// One of them cannot be made, or fails: every step is one that succeeds.
pub fn run(settings: &Settings, go_on: &dyn Fn() -> bool) -> Result<Report> {
    let data = if settings.journal_data { DataMode::Journal } else { DataMode::Ordered };
    let mut steps = micro();
    for personality in &settings.workloads {
        steps.extend(macro_steps(personality, settings.seed)?);
    }
    steps.extend(settings.ycsb.iter().map(|workload| ycsb_step(workload, settings.seed)));
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    for round in 0..settings.rounds {
        let workspace = Workspace::new()?;
        let mut kernel = Rival::kernel(&workspace, &settings.amphi, data).context("the kernel's ext4")?;
        let trace = settings.trace.as_deref().filter(|_| round == 0);
        let trace = trace.map(|into| Trace::start(Path::new(kernel.device()), into)).transpose()?;
        theirs.push(measure(&mut kernel, &steps, round, trace, go_on).context("the kernel's ext4")?);
        drop(kernel);
        let mut baseline = Rival::baseline(&workspace, data).context("the baseline")?;
        ours.push(measure(&mut baseline, &steps, round, None, go_on).context("the baseline")?);
    }
    let of = |rounds: &[Vec<Traffic>], step: usize| -> Vec<Traffic> {
        rounds.iter().filter_map(|round| round.get(step).cloned()).collect()
    };
    let rows = steps.iter().enumerate().filter_map(|(number, step)| {
        Row::of(&step.name, step.operations, &of(&theirs, number), &of(&ours, number))
    });
    Ok(Report {
        schema: SCHEMA,
        journal_data: settings.journal_data,
        rounds: settings.rounds,
        interrupted: !go_on(),
        rows: rows.collect(),
    })
}

fn measure(
    rival: &mut Rival,
    steps: &[Step],
    round: usize,
    mut trace: Option<Trace>,
    go_on: &dyn Fn() -> bool,
) -> Result<Vec<Traffic>> {
    let (files, record, layout) = rival.parts();
    let mut bench = Bench::new(files)?;
    bench.advance_log(round)?;
    let mut all = Vec::new();
    for step in steps {
        if !go_on() {
            break;
        }
        (step.prepare)(&mut bench).with_context(|| format!("{}, preparing", step.name))?;
        // What the step before has left to be written is not this one's.
        bench.files.sync()?;
        Rival::take(record, layout)?;
        trace.as_ref().map_or(Ok(()), Trace::clear)?;
        (step.act)(&mut bench).with_context(|| step.name.clone())?;
        all.push(Rival::take(record, layout)?);
        trace.as_mut().map_or(Ok(()), |trace| trace.take(&step.name))?;
    }
    Ok(all)
}
