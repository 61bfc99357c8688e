//! The same steps on both file systems, one after the other.

use std::path::PathBuf;

use amphi_fs_ext4like::DataMode;
use anyhow::{Context, Result};

use super::record::Traffic;
use super::report::{Report, Row, SCHEMA};
use super::rivals::Rival;
use super::steps::{Bench, Step, macro_step, micro};
use crate::peers::Workspace;
use crate::workload::Personality;

/// How to run it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The program that exports.
    pub amphi: PathBuf,
    /// Workloads, scaled, each of a certain number of operations.
    pub workloads: Vec<Personality>,
    /// Whether file data go through the journal, on both.
    pub journal_data: bool,
    /// Decides what the workloads leave to chance.
    pub seed: u64,
}

/// Runs all steps on the kernel's ext4 and on the baseline, and compares what reached their SSDs.
///
/// # Errors
/// One of them cannot be made, or fails: every step is one that succeeds.
pub fn run(settings: &Settings, go_on: &dyn Fn() -> bool) -> Result<Report> {
    let data = if settings.journal_data { DataMode::Journal } else { DataMode::Ordered };
    let workspace = Workspace::new()?;
    let mut steps = micro();
    for personality in &settings.workloads {
        steps.push(macro_step(personality, settings.seed)?);
    }
    let mut kernel = Rival::kernel(&workspace, &settings.amphi, data).context("the kernel's ext4")?;
    let theirs = measure(&mut kernel, &steps, go_on).context("the kernel's ext4")?;
    drop(kernel);
    let mut baseline = Rival::baseline(&workspace, data).context("the baseline")?;
    let ours = measure(&mut baseline, &steps, go_on).context("the baseline")?;
    let rows = steps.iter().zip(theirs).zip(ours);
    Ok(Report {
        schema: SCHEMA,
        journal_data: settings.journal_data,
        interrupted: !go_on(),
        rows: rows
            .map(|((step, theirs), ours)| Row::of(&step.name, step.operations, &theirs, &ours))
            .collect(),
    })
}

fn measure(rival: &mut Rival, steps: &[Step], go_on: &dyn Fn() -> bool) -> Result<Vec<Traffic>> {
    let (files, record, layout) = rival.parts();
    let mut bench = Bench::new(files)?;
    let mut all = Vec::new();
    for step in steps {
        if !go_on() {
            break;
        }
        (step.prepare)(&mut bench).with_context(|| format!("{}, preparing", step.name))?;
        // What the step before has left to be written is not this one's.
        bench.files.sync()?;
        Rival::take(record, layout)?;
        (step.act)(&mut bench).with_context(|| step.name.clone())?;
        all.push(Rival::take(record, layout)?);
    }
    Ok(all)
}
