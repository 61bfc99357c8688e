//! Rounds: for each application every file system gets its turn in each round, in an order that changes, so
//! that what disturbs the machine disturbs all.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};

use super::place::{LOGS, Mounted, PLACES, PRELOADED, Place};
use super::report::{Application, PlaceReport, Report, SCHEMA};
use super::{Program, Rounds, Site, all};
use crate::peers::{self, Workspace};

/// A run of less than this scale only tries whether all works.
const SCALE_MEASURED_MIN: f64 = 0.1;

/// How to run it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The program that serves mounts and exports.
    pub amphi: PathBuf,
    /// Rounds that count.
    pub rounds: usize,
    /// The applications whose names contain one of these words; none means all.
    pub only: Vec<String>,
    /// The number of writes of a round is multiplied by this.
    pub scale: f64,
    /// Also run them as `amphi run` does, and on tmpfs.
    pub preload: bool,
    /// On the SSDs of 2B-SSD's figure 9 in the place of all others, their times multiplied by this.
    pub logs: Option<f64>,
    /// The file systems whose names contain one of these words; none means all.
    pub places: Vec<String>,
}

/// What a run tells while it goes on.
pub enum Progress<'a> {
    /// A file system takes part, or cannot.
    Place(&'a PlaceReport),
    /// An application on a file system is next.
    Next(&'a str, &'a str),
    /// An application is done.
    Done(&'a Application),
}

/// Dropped in this order: mounts before the memory below them.
struct Made {
    mounts: Vec<(Place, Mounted)>,
    workspace: Workspace,
}

/// Runs the applications on every file system that this machine has.
///
/// # Errors
/// No application is chosen, or there is no room for the run.
pub fn run(
    settings: &Settings,
    go_on: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(Progress<'_>),
) -> Result<Report> {
    let is_wanted = |name: &str| {
        settings.only.is_empty() || settings.only.iter().any(|word| name.contains(word.as_str()))
    };
    let programs: Vec<_> = all().into_iter().filter(|(program, _)| is_wanted(program.name())).collect();
    if programs.is_empty() {
        return Err(anyhow!("no application is called {}", settings.only.join(" or ")));
    }
    peers::reclaim();
    let mut report = Report {
        schema: SCHEMA,
        rounds: settings.rounds,
        dilation: settings.logs.unwrap_or(1.0),
        interrupted: false,
        places: Vec::new(),
        applications: Vec::new(),
    };
    let mut made = Made { mounts: Vec::new(), workspace: Workspace::new()? };
    let offered: &[&[Place]] = match (settings.logs, settings.preload) {
        (Some(_), _) => &[&LOGS],
        (None, true) => &[&PLACES, &PRELOADED],
        (None, false) => &[&PLACES],
    };
    let is_chosen = |place: &Place| {
        settings.places.is_empty() || settings.places.iter().any(|word| place.name.contains(word.as_str()))
    };
    for place in offered.concat().into_iter().filter(is_chosen) {
        if !go_on() {
            break;
        }
        let mounted = place.mount(&made.workspace, &settings.amphi, report.dilation).and_then(|mounted| {
            if settings.scale >= SCALE_MEASURED_MIN {
                place.make_resident(&mounted)?;
            }
            Ok(mounted)
        });
        let failure = mounted.as_ref().err().map(|error| format!("{error:#}"));
        let entry =
            PlaceReport { name: place.name.to_owned(), description: place.description.to_owned(), failure };
        tell(Progress::Place(&entry));
        report.places.push(entry);
        made.mounts.extend(mounted.ok().map(|mounted| (place, mounted)));
    }
    for (program, operations) in &programs {
        let operations = ((*operations as f64 * settings.scale) as u64).max(1);
        let mut samples =
            rounds(&made, &**program, operations, (&settings.amphi, settings.rounds), go_on, tell);
        if !go_on() {
            report.interrupted = true;
            break;
        }
        // A second of the device's takes as many of ours as its times are multiplied by.
        for rate in samples.iter_mut().flatten().flatten() {
            *rate *= report.dilation;
        }
        let places: Vec<_> = made.mounts.iter().map(|(place, _)| *place).collect();
        let application = Application::of(&**program, operations, &places, samples);
        tell(Progress::Done(&application));
        report.applications.push(application);
    }
    Ok(report)
}

/// The rates of each file system's rounds, or why there are none.
fn rounds(
    made: &Made,
    program: &dyn Program,
    operations: u64,
    (amphi, rounds): (&Path, usize),
    go_on: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(Progress<'_>),
) -> Vec<Result<Vec<f64>>> {
    let mut running: Vec<Result<Box<dyn Rounds>>> = Vec::new();
    for (place, mounted) in &made.mounts {
        if !go_on() {
            return Vec::new();
        }
        tell(Progress::Next(program.name(), place.name));
        running.push(start(made, place, mounted, program, amphi));
    }
    let mut samples: Vec<Result<Vec<f64>>> = running.iter().map(|_| Ok(Vec::new())).collect();
    // The first round warms up and does not count.
    for round in 0..=rounds {
        for position in 0..running.len() {
            let at = (position + round) % running.len();
            let (Ok(rounds), Ok(rates)) = (&mut running[at], &mut samples[at]) else { continue };
            if !go_on() {
                return Vec::new();
            }
            tell(Progress::Next(program.name(), made.mounts[at].0.name));
            match rounds.round(operations) {
                Ok(rate) if round > 0 => rates.push(rate),
                Ok(_) => {}
                Err(error) => samples[at] = Err(error),
            }
        }
    }
    running.into_iter().zip(samples).map(|(running, rates)| running.and(rates)).collect()
}

fn start(
    made: &Made,
    place: &Place,
    mounted: &Mounted,
    program: &dyn Program,
    amphi: &Path,
) -> Result<Box<dyn Rounds>> {
    let directory = mounted.directory().join(program.name());
    std::fs::create_dir(&directory).with_context(|| format!("{} cannot be made", directory.display()))?;
    let scratch = made.workspace.directory(&format!("{}-{}", program.name(), place.name))?;
    let preloaded_by = place.is_preloaded().then_some(amphi);
    program.start(&Site { directory: &directory, scratch: &scratch, preloaded_by, commits: place.commits })
}
