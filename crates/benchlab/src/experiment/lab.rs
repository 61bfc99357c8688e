//! Runs an experiment: its cells, as far as they are not finished yet, and then its figure.

use std::sync::atomic::{AtomicUsize, Ordering};

use amphi_rt::sync::Mutex;
use amphi_rt::task;
use anyhow::{Context, Result, anyhow};

use super::ablation::{self, Again};
use super::cell::{Cell, CellResult};
use super::definition::{Definition, Measure};
use super::explain::from_counters;
use super::jobs;
use super::loaded::LoadedDevices;
use super::measure::Results;
use super::run;
use super::state::State;
use super::whole;
use super::wishes::{Wishes, cells};
use crate::figure::{Bar, Explanation, Figure, Group, Latency, Refused, SCHEMA};

/// What a run tells while it goes on.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'a> {
    /// So many cells are to be run, beside those that were finished before.
    Begun {
        /// Cells to be run.
        cells: usize,
        /// Cells finished before.
        finished: usize,
    },
    /// A cell is finished.
    Done(&'a Cell),
}

/// Runs what is not finished of an experiment and draws up its figure. `None` if `proceed` became false
/// before; what was finished by then is in `state`.
///
/// # Errors
/// A cell failed, or the state cannot be written.
pub fn run(
    definition: &Definition,
    wishes: &Wishes,
    state: &mut State,
    proceed: &(dyn Fn() -> bool + Sync),
    tell: &(dyn Fn(Progress<'_>) + Sync),
) -> Result<Option<Figure>> {
    let cells = cells(definition, wishes);
    let ablated = ablation::all_cells(definition, wishes);
    let mut needed: Vec<&Cell> = Vec::new();
    for cell in cells.iter().chain(&ablated) {
        if !needed.contains(&cell) {
            needed.push(cell);
        }
    }
    let mut missing: Vec<&Cell> = needed.iter().filter(|cell| state.get(cell).is_none()).copied().collect();
    missing.sort_by_key(|cell| {
        let place = definition.begin_with.iter().position(|workload| *workload == cell.workload);
        place.unwrap_or(usize::MAX)
    });
    tell(Progress::Begun { cells: missing.len(), finished: needed.len() - missing.len() });
    let scale_max = missing.iter().map(|cell| cell.scale).fold(0.0, f64::max);
    let jobs = wishes.jobs.unwrap_or_else(|| jobs::that_fit(scale_max)).max(1);
    run_cells(&missing, jobs, state, proceed, tell)?;
    let results: Option<Vec<CellResult>> = cells.iter().map(|cell| state.get(cell)).collect();
    // Without all of them, it was interrupted.
    let all_finished = ablated.iter().all(|cell| state.get(cell).is_some());
    results.filter(|_| all_finished).map(|results| figure(definition, wishes, &results, state)).transpose()
}

fn run_cells(
    missing: &[&Cell],
    jobs: usize,
    state: &mut State,
    proceed: &(dyn Fn() -> bool + Sync),
    tell: &(dyn Fn(Progress<'_>) + Sync),
) -> Result<()> {
    let next = AtomicUsize::new(0);
    let state = Mutex::new(state);
    let loaded = LoadedDevices::default();
    let work = || -> Result<()> {
        while proceed() {
            let Some(cell) = missing.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
            let named = || format!("{} on {}", cell.workload, cell.system.title());
            let result = run::cell(cell, &loaded).with_context(named);
            if result.is_err() {
                // The others need not go on.
                next.store(missing.len(), Ordering::Relaxed);
            }
            state.lock().put(cell, result?)?;
            tell(Progress::Done(cell));
        }
        Ok(())
    };
    task::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn("cells", work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join())
    })
}

fn figure(definition: &Definition, wishes: &Wishes, cells: &[CellResult], state: &State) -> Result<Figure> {
    let scale = wishes.scale.unwrap_or(definition.scale);
    let seed = wishes.seed.unwrap_or(definition.seed);
    let results = Results { definition, cells };
    let (mut groups, refused) = match whole::groups(definition, wishes)? {
        Some(groups) => (groups, Vec::new()),
        None => (results.bars(), results.refused()),
    };
    publish(definition, &mut groups, &refused)?;
    let mut figure = Figure {
        schema: SCHEMA,
        name: definition.name.clone(),
        title: definition.title.clone(),
        question: definition.question.clone(),
        claim: definition.claim.clone(),
        claim_row: definition.claim_row.clone(),
        command: command(definition, wishes),
        seed,
        scale,
        unit: definition.unit.clone(),
        logarithmic: definition.logarithmic,
        method: definition.method.clone(),
        groups,
        refused,
        differences: Vec::new(),
        latencies: latencies(&results),
    };
    let again = ablation::all(definition, wishes, state)?;
    figure.differences = differences(&results, &again, &figure)?;
    Ok(figure)
}

/// The command that makes the same figure again.
fn command(definition: &Definition, wishes: &Wishes) -> String {
    let mut command = format!("amphi bench run {}", definition.name);
    if let Some(scale) = wishes.scale {
        command += &format!(" --scale {scale}");
    }
    if let Some(seed) = wishes.seed {
        command += &format!(" --seed {seed}");
    }
    if let Some(threads) = wishes.threads {
        command += &format!(" --threads {threads}");
    }
    for change in wishes.change.words() {
        command += &format!(" --change {change}");
    }
    command
}

/// Puts the published values beside ours. A value that is not there may have rested on a cell that was
/// refused.
fn publish(definition: &Definition, groups: &mut [Group], refused: &[Refused]) -> Result<()> {
    for published in &definition.published {
        let group = groups.iter_mut().find(|group| group.label == published.group);
        let bar = group.and_then(|group| group.bars.iter_mut().find(|bar| bar.series == published.series));
        if bar.is_none() && !refused.is_empty() {
            continue;
        }
        let bar = bar.ok_or_else(|| {
            anyhow!(
                "{}: nothing is measured for the published {} / {}",
                definition.name,
                published.group,
                published.series
            )
        })?;
        bar.published = published.value;
        let how = if published.read_off { ", read off the drawing" } else { "" };
        bar.note = Some(format!("{}{how}", published.source));
    }
    Ok(())
}

fn differences(results: &Results<'_>, again: &[Again<'_>], figure: &Figure) -> Result<Vec<Explanation>> {
    let definition = results.definition;
    let mut differences = Vec::new();
    for group in &figure.groups {
        for bar in &group.bars {
            let place = format!("{} / {}", group.label, bar.series);
            // What the paper says in words only is told of where an ablation asks what decides it.
            let in_words = bar.published.is_none()
                && definition.ablations.iter().any(|ablation| ablation.places.contains(&place));
            if !bar.differs() && !in_words {
                continue;
            }
            let (ablations, refused) = ablation::values(again, group, bar)?;
            let ablated = ablation::told(bar, &ablations, &refused, figure.unit_of(bar));
            let written = definition.explained.iter().find(|explained| explained.place == place);
            let written = written.map(|explained| explained.why.trim().to_owned());
            let counted = results.behind(&group.label, &bar.series).map(from_counters);
            let counted = counted.or_else(|| behind(bar));
            let why: Vec<String> = ablated.into_iter().chain(written).chain(counted).collect();
            if !why.is_empty() {
                differences.push(Explanation { place, ratio: bar.ratio(), why: why.join(" "), ablations });
            }
        }
    }
    Ok(differences)
}

/// The numbers behind a bar that is not made of cells, in words.
fn behind(bar: &Bar) -> Option<String> {
    let each: Vec<String> = bar
        .details
        .iter()
        .map(|of| format!("{} {}{}{}", of.name, of.value, if of.unit.is_empty() { "" } else { " " }, of.unit))
        .collect();
    (!each.is_empty()).then(|| format!("Behind it: {}.", each.join(", ")))
}

fn latencies(results: &Results<'_>) -> Vec<Latency> {
    let definition = results.definition;
    let mut latencies = Vec::new();
    if !matches!(definition.measure, Measure::Throughput | Measure::Time) {
        return latencies;
    }
    for (variation, case) in
        (0..definition.variations.len()).flat_map(|v| (0..definition.cases.len()).map(move |c| (v, c)))
    {
        for (system, named) in definition.systems.iter().enumerate() {
            for of in &results.of(variation, case, system).latencies {
                latencies.push(Latency {
                    label: results.label(variation, case),
                    series: named.title().to_owned(),
                    operation: of.operation.clone(),
                    count: of.count,
                    mean_ns: of.mean_ns,
                    p50_ns: of.p50_ns,
                    p95_ns: of.p95_ns,
                    p99_ns: of.p99_ns,
                    p999_ns: of.p999_ns,
                });
            }
        }
    }
    latencies
}
