//! The search for interleavings that break a program: many seeds, each with its own schedule.

use super::{Failure, Schedule, Sim};
use std::ops::Range;

/// The environment variable that makes a search run one seed only: how a failure is replayed.
const SEED_VARIABLE: &str = "AMPHI_SEED";
/// The environment variable that makes a replay write a trace.
const TRACE_VARIABLE: &str = "AMPHI_TRACE";

/// A search over seeds. Each seed decides ties, chance and schedule: even seeds preempt at random, odd ones
/// follow probabilistic concurrency testing, unless [`Explore::schedule`] says which. How often to preempt
/// follows from the number of points that the program passes when nothing preempts it, so it is run once more
/// than there are seeds.
#[derive(Debug, Clone)]
pub struct Explore {
    seeds: Range<u64>,
    world: Sim,
    schedule: Option<Schedule>,
}

/// A failure that a search found.
#[derive(Debug, Clone)]
pub struct Found {
    /// What failed, with its seed.
    pub failure: Failure,
    /// How many seeds were run, this one included.
    pub runs: u64,
    /// The command that runs this seed again, when the search is in a test run by Cargo.
    pub replay: String,
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}\n  found after {} runs; replay with: {}", self.failure, self.runs, self.replay)
    }
}

impl Sim {
    /// A search over these seeds for an interleaving that fails: see [`Explore::run`].
    #[must_use]
    pub fn explore(seeds: Range<u64>) -> Explore {
        Explore { seeds, world: Sim::new(0), schedule: None }
    }
}

impl Explore {
    /// The world in which each seed is run; its seed and schedule do not matter.
    #[must_use]
    pub fn within(mut self, world: Sim) -> Self {
        self.world = world;
        self
    }

    /// Runs every seed under this schedule.
    #[must_use]
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedule = Some(schedule);
        self
    }

    /// Runs `program` under every seed until one fails. With `AMPHI_SEED` set, runs that seed only, and with
    /// `AMPHI_TRACE` set too, writes its trace there.
    ///
    /// # Panics
    /// If a seed fails: with the failure and the command that replays it.
    #[track_caller]
    pub fn run(&self, program: impl Fn()) {
        let replayed = std::env::var(SEED_VARIABLE).ok().and_then(|seed| seed.parse().ok());
        let found = match replayed {
            Some(seed) => {
                let search = Self { seeds: seed..seed + 1, ..self.clone() };
                search.search(&program, std::env::var(TRACE_VARIABLE).ok().as_deref())
            }
            None => self.search(&program, None),
        };
        if let Some(found) = found {
            panic!("{found}");
        }
    }

    /// Runs `program` under every seed until one fails, and returns that.
    pub fn find(&self, program: impl Fn()) -> Option<Found> {
        self.search(&program, None)
    }

    /// Runs one seed as the search would.
    ///
    /// # Errors
    /// How it fails.
    pub fn replay(&self, seed: u64, program: impl Fn()) -> Result<(), Failure> {
        let points = self.points(&program)?;
        self.one(seed, points).try_run(program)
    }

    fn search(&self, program: &dyn Fn(), trace: Option<&str>) -> Option<Found> {
        let points = match self.points(program) {
            Ok(points) => points,
            Err(failure) => return Some(Found { replay: replay_command(failure.seed), failure, runs: 1 }),
        };
        for (seed, runs) in self.seeds.clone().zip(1..) {
            let mut sim = self.one(seed, points);
            if let Some(path) = trace {
                sim = sim.trace(path);
            }
            if let Err(failure) = sim.try_run(program) {
                return Some(Found { replay: replay_command(seed), failure, runs });
            }
        }
        None
    }

    /// The points that the program passes undisturbed. The same for every search of it, so that a replay
    /// finds the same schedule.
    fn points(&self, program: &dyn Fn()) -> Result<u64, Failure> {
        let (result, points) = self.world(0, Schedule::Random { per_mille: 0, delay_ns: 0 }).execute(program);
        result.map(|()| points.max(1))
    }

    /// The world of one seed, for a program with so many points.
    fn one(&self, seed: u64, points: u64) -> Sim {
        let variant = seed / 2 % 3;
        let random = |preemptions: u64| (preemptions * 1000 / points).clamp(5, 300) as u32;
        let schedule = match self.schedule {
            Some(Schedule::Pct { depth, points: 0 }) => Schedule::Pct { depth, points },
            Some(schedule) => schedule,
            None if seed.is_multiple_of(2) => Schedule::Random {
                per_mille: [random(2), random(10), 200][variant as usize],
                delay_ns: 10_000,
            },
            None => Schedule::Pct { depth: 2 + variant as u32, points },
        };
        self.world(seed, schedule)
    }

    fn world(&self, seed: u64, schedule: Schedule) -> Sim {
        let mut sim = self.world.clone().schedule(schedule);
        sim.settings.seed = seed;
        sim
    }
}

/// The command for the test that runs on this OS thread: the test harness names threads after tests, and
/// Cargo names the package.
fn replay_command(seed: u64) -> String {
    let thread = std::thread::current();
    let test = thread.name().filter(|name| *name != "main").unwrap_or("");
    let Ok(package) = std::env::var("CARGO_PKG_NAME") else {
        return format!("{SEED_VARIABLE}={seed} and the same program");
    };
    let binary = std::env::current_exe().ok();
    let binary = binary
        .as_ref()
        .and_then(|path| path.file_stem()?.to_str()?.rsplit_once('-'))
        .map_or("", |(stem, _)| stem);
    let target =
        if binary == package.replace('-', "_") { "--lib".to_owned() } else { format!("--test {binary}") };
    format!("{SEED_VARIABLE}={seed} cargo test -p {package} {target} {test} -- --exact")
}
