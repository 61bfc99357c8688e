//! Runs a plan: makes its files, starts its threads, and measures the window after the warm-up.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use amphi_rt::random::Generator;
use amphi_rt::sync::Mutex;
use amphi_rt::{task, time};

use super::fileset::{Prepared, Set};
use super::outcome::{Outcome, StepOutcome};
use super::plan::{Plan, TRANSFER_MAX};
use super::semaphore::Instances;
use super::shared::{Shared, Window};
use super::thread::{Tally, Thread};
use crate::files::{Files, Result};
use crate::operation::fill;

/// How a run is done.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Decides everything that is left to chance.
    pub seed: u64,
}

/// Makes the filesets of a plan in an empty directory and makes them durable.
///
/// # Errors
/// What the file system answers.
pub fn prepare(files: &dyn Files, plan: &Plan, settings: Settings) -> Result<Prepared> {
    let mut chance = Generator::new(settings.seed ^ 0x7072_6570);
    let parts = plan.groups.iter().map(|group| group.threads).max().unwrap_or(1);
    let sets: Vec<Set> = plan.filesets.iter().map(|set| Set::new(set, parts, &mut chance)).collect();
    let mut contents = contents(settings.seed);
    let tasks = plan.threads().clamp(1, 16);
    for set in &sets {
        set.make(files, tasks, chance.next(), &contents)?;
    }
    files.sync()?;
    // The run writes something else.
    fill(&mut contents, (settings.seed ^ 1) as u8);
    Ok(Prepared { sets, contents })
}

/// Runs a plan whose files are prepared. `begin` is called when the window that counts begins: to read
/// counters.
///
/// # Errors
/// What the file system answers: every operation of a workload is one that succeeds.
pub fn run(
    files: &dyn Files,
    prepared: &Prepared,
    plan: &Plan,
    settings: Settings,
    begin: &(dyn Fn() + Sync),
) -> Result<Outcome> {
    let ns = |seconds: f64| (seconds * 1e9) as u64;
    let started = time::now_ns();
    let begin_ns = started + ns(plan.run.warm_up_seconds);
    let end_ns = plan.run.seconds.map_or(u64::MAX, |seconds| begin_ns + ns(seconds));
    let shared = Shared {
        files,
        prepared,
        semaphores: plan
            .semaphores
            .iter()
            .map(|semaphore| {
                let groups = plan.groups.iter().enumerate();
                let threads =
                    groups.map(|(group, of)| if semaphore.waiting.contains(&group) { of.threads } else { 0 });
                Instances::new(semaphore.high_water, threads)
            })
            .collect(),
        plan,
        contents: &prepared.contents,
        window: Window { begin_ns, end_ns },
        over: AtomicBool::new(false),
        left: plan.run.operations.map(AtomicU64::new),
        failure: Mutex::new(None),
    };
    if begin_ns == started {
        begin();
    }
    let mut tallies: Vec<Vec<Tally>> = Vec::new();
    task::scope(|scope| {
        let shared = &shared;
        let mut seeds = Generator::new(settings.seed);
        let mut running = Vec::new();
        for (group, planned) in plan.groups.iter().enumerate() {
            for number in 0..planned.threads {
                let seed = seeds.next();
                running.push((
                    group,
                    scope.spawn(&planned.name, move || {
                        Thread::new(shared, group, number, seed).run().unwrap_or_else(|error| {
                            shared.over.store(true, Ordering::Relaxed);
                            shared.failure.lock().get_or_insert(error);
                            Vec::new()
                        })
                    }),
                ));
            }
        }
        if begin_ns > started {
            time::sleep_until_ns(begin_ns);
            begin();
        }
        tallies.resize_with(plan.groups.len(), Vec::new);
        for (group, thread) in running {
            merge(&mut tallies[group], thread.join());
        }
    });
    if let Some(error) = shared.failure.lock().take() {
        return Err(error);
    }
    let elapsed_ns = time::now_ns().min(end_ns) - begin_ns;
    Ok(outcome(plan, tallies, elapsed_ns))
}

fn merge(into: &mut Vec<Tally>, from: Vec<Tally>) {
    if into.is_empty() {
        *into = from;
        return;
    }
    for (sum, tally) in into.iter_mut().zip(from) {
        sum.bytes += tally.bytes;
        sum.done += tally.done;
        // Both were made alike.
        let _ = sum.latency.add(&tally.latency);
    }
}

fn outcome(plan: &Plan, tallies: Vec<Vec<Tally>>, elapsed_ns: u64) -> Outcome {
    let mut outcome = Outcome {
        operations: 0,
        operations_in_all: 0,
        bytes_read: 0,
        bytes_written: 0,
        elapsed_ns,
        steps: Vec::new(),
    };
    for (group, tallies) in plan.groups.iter().zip(tallies) {
        for (step, tally) in group.steps.iter().zip(tallies) {
            let counts = step.op.counts();
            if counts {
                outcome.operations += tally.latency.len();
                outcome.operations_in_all += tally.done;
            }
            match step.op.name() {
                "read" | "read-whole" => outcome.bytes_read += tally.bytes,
                _ => outcome.bytes_written += tally.bytes,
            }
            outcome.steps.push(StepOutcome {
                group: group.name.clone(),
                operation: step.op.name(),
                counts,
                bytes: tally.bytes,
                latency: tally.latency,
            });
        }
    }
    outcome
}

/// What is written: noise in which no two lines are equal, so that what is overwritten changes.
fn contents(seed: u64) -> Vec<u8> {
    let mut contents = vec![0; 2 * TRANSFER_MAX as usize];
    fill(&mut contents, seed as u8);
    contents
}
