//! The same steps on both file systems, one after the other.

use std::path::Path;

use anyhow::{Context, Result};

use super::record::Traffic;
use super::report::{Report, Row, SCHEMA};
use super::rivals::Rival;
use super::settings::{Kind, Settings};
use super::steps::{Step, steps};
use super::trace::Trace;
use crate::peers::Workspace;

/// Runs all steps on the kernel's file system and on the baseline, and compares what reached their SSDs.
///
/// # Errors
/// One of them cannot be made, or fails: every step is one that succeeds.
pub fn run(settings: &Settings, go_on: &dyn Fn() -> bool) -> Result<Report> {
    let steps = steps(&settings.asked)?;
    let name = || format!("the kernel's {}", settings.kind.name());
    let mut about = None;
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    for round in 0..settings.rounds {
        let workspace = Workspace::new()?;
        let mut kernel = Rival::kernel(&workspace, settings).with_context(name)?;
        about = kernel.about().map(str::to_owned);
        let trace = settings.trace.as_deref().filter(|_| round == 0);
        let trace = trace.map(|into| Trace::start(Path::new(kernel.device()), into)).transpose()?;
        theirs.push(measure(&mut kernel, &steps, round, trace, go_on).with_context(name)?);
        kernel.end().with_context(name)?;
        let mut baseline = Rival::baseline(&workspace, settings.kind).context("the baseline")?;
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
        file_system: settings.kind.name(),
        machine: about,
        journal_data: settings.kind == (Kind::Ext4 { journal_data: true }),
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
    let (place, record, structures) = rival.parts();
    let (mut hands, flash) = place.begin(steps, round)?;
    let mut all = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        if !go_on() {
            break;
        }
        hands.make_ready(number)?;
        Rival::take(record, structures)?;
        let before = flash.bytes()?;
        trace.as_ref().map_or(Ok(()), Trace::clear)?;
        hands.act(number).with_context(|| step.name.clone())?;
        let traffic = Rival::take(record, structures)?;
        all.push(Traffic { flash_bytes: flash.bytes()? - before, ..traffic });
        trace.as_mut().map_or(Ok(()), |trace| trace.take(&step.name))?;
    }
    Ok(all)
}
