//! Every workload on every file system, each time on a new SSD.

use std::path::PathBuf;

use amphi_rt::sync::Mutex;
use anyhow::{Context, Result, anyhow};

use super::contestant::{CONTESTANTS, Contestant, Ssds};
use super::counters::Counters;
use super::dilation::{self, Calibration};
use super::report::{Cell, Report, SCHEMA, Workload};
use crate::peers::Workspace;
use crate::workload::{self, Outcome, Personality, Plan};

/// How to run it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The program that serves mounts and exports.
    pub amphi: PathBuf,
    /// The workloads, scaled, each of a certain number of operations.
    pub workloads: Vec<Personality>,
    /// The file systems whose names contain one of these words; none means all.
    pub only: Vec<String>,
    /// The SSDs' profile.
    pub profile: String,
    /// Bytes of each SSD.
    pub ssd_bytes: u64,
    /// What device times are multiplied by; none to find out.
    pub dilation: Option<f64>,
    /// Decides everything that is left to chance.
    pub seed: u64,
    /// Share of the published number of files.
    pub scale: f64,
}

/// What a run tells while it goes on.
pub enum Progress<'a> {
    /// The dilation is known.
    Calibrated(&'a Calibration),
    /// A workload begins.
    Workload(&'a str),
    /// A file system is next.
    Next(&'a str),
    /// It is done.
    Done(&'a Cell),
}

/// The file systems whose names contain one of the words.
fn chosen(words: &[String]) -> Vec<Contestant> {
    let is_wanted = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word.as_str()));
    CONTESTANTS.into_iter().filter(|contestant| is_wanted(contestant.name)).collect()
}

/// Runs the workloads on every file system that this machine has.
///
/// # Errors
/// No file system is chosen, a workload is impossible, or the SSD cannot be exported: then nothing can be
/// compared.
pub fn run(
    settings: &Settings,
    go_on: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(Progress<'_>),
) -> Result<Report> {
    let contestants = chosen(&settings.only);
    if contestants.is_empty() {
        let all: Vec<_> = CONTESTANTS.iter().map(|contestant| contestant.name).collect();
        return Err(anyhow!(
            "no file system is called {}; there are {}",
            settings.only.join(" or "),
            all.join(", ")
        ));
    }
    let plans = settings.workloads.iter().map(Plan::new).collect::<Result<Vec<_>, _>>()?;
    let workspace = Workspace::new()?;
    let ssds = Ssds { profile: &settings.profile, size: settings.ssd_bytes, dilation: None };
    let calibration = dilation::calibrate(&workspace, &settings.amphi, &ssds, settings.dilation)?;
    drop(workspace);
    tell(Progress::Calibrated(&calibration));
    let ssds = Ssds { dilation: Some(calibration.dilation), ..ssds };
    let mut report = Report {
        schema: SCHEMA,
        profile: settings.profile.clone(),
        seed: settings.seed,
        scale: settings.scale,
        interrupted: false,
        calibration,
        workloads: Vec::new(),
    };
    for (personality, plan) in settings.workloads.iter().zip(&plans) {
        tell(Progress::Workload(&personality.name));
        let mut done = Workload {
            name: personality.name.clone(),
            description: personality.description.clone(),
            threads: plan.threads(),
            cells: Vec::new(),
        };
        for contestant in &contestants {
            if !go_on() {
                report.interrupted = true;
                break;
            }
            tell(Progress::Next(contestant.name));
            let cell = match measure(contestant, settings, &ssds, plan) {
                Ok((outcome, counted)) => Cell::of(contestant.name, &outcome, &counted, calibration.dilation),
                Err(error) => Cell::failed(contestant.name, &format!("{error:#}")),
            };
            tell(Progress::Done(&cell));
            done.cells.push(cell);
        }
        report.workloads.push(done);
        if report.interrupted {
            break;
        }
    }
    Ok(report)
}

/// One workload on one file system: what came of it, and what its SSD counted from its first operation until
/// everything was durable.
fn measure(
    contestant: &Contestant,
    settings: &Settings,
    ssds: &Ssds<'_>,
    plan: &Plan,
) -> Result<(Outcome, Counters)> {
    // One of its own, so that the memory of one SSD is free again before the next.
    let workspace = Workspace::new()?;
    let seated = contestant.seat(&workspace, &settings.amphi, ssds)?;
    let files = seated.files();
    let seed = workload::Settings { seed: settings.seed };
    let prepared = workload::prepare(files, plan, seed).context("the files cannot be made")?;
    let before: Mutex<Option<Result<Counters>>> = Mutex::new(None);
    let begin = || {
        before.lock().get_or_insert_with(|| seated.counters());
    };
    let outcome = workload::run(files, &prepared, plan, seed, &begin)?;
    files.sync()?;
    let after = seated.counters()?;
    let before = before.into_inner().context("the workload did not begin")??;
    Ok((outcome, after.since(&before)))
}
