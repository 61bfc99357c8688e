//! A benchmark's workload as operations to crash: a personality made small, run once over the model with a
//! recorder around it.
//!
//! Everything is decided by the personality, the number of operations and the seed, which is why these three
//! are in the ID of a crash: `bytefs/varmail.200-7@31:m5` is crash point 31 of 200 operations of varmail
//! drawn by seed 7.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use amphi_benchlab::files::{HostCosts, LibraryFiles};
use amphi_benchlab::workload::{self, PRESETS, Personality, Plan, Run, Settings, Size};
use amphi_crashlab::{CrashId, Kind};
use amphi_model::Model;
use amphi_rt::Sim;
use amphi_rt::sync::Mutex;
use amphi_trace::{Operation, Recording};
use anyhow::{Context, Result, anyhow, bail};

/// Most files of a set.
const FILES: u64 = 24;
/// What the files of a set may have in bytes before the run, on average.
const BYTES: u64 = 1 << 20;
/// The longest transfer, in bytes.
const TRANSFER: u64 = 64 << 10;
/// Operations where nobody says how many.
pub const OPERATIONS: u64 = 200;

/// A benchmark's workload, of a length and drawn by a seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bench {
    /// A built-in personality, or the path of a file with one.
    pub name: String,
    /// How many operations it does, those that change nothing included.
    pub operations: u64,
    /// What draws them.
    pub seed: u64,
}

/// Whether a name can be that of a benchmark's workload.
pub fn is_known(name: &str) -> bool {
    name.ends_with(".toml") || PRESETS.iter().any(|preset| preset.name == name)
}

impl Bench {
    fn personality(&self) -> Result<Personality> {
        if let Some(preset) = PRESETS.iter().find(|preset| preset.name == self.name) {
            return Ok(Personality::from_toml(preset.toml, &[])?);
        }
        let text =
            std::fs::read_to_string(&self.name).with_context(|| format!("cannot read {}", self.name))?;
        Personality::from_toml(&text, &[]).with_context(|| self.name.clone())
    }

    /// The operations.
    ///
    /// # Errors
    /// There is no such personality, or it is impossible.
    pub fn trace(&self) -> Result<Vec<Operation>> {
        let personality = self.personality()?;
        if waits(&personality) {
            bail!(
                "{} waits for semaphores, which a number of operations does not end; choose another workload",
                self.name
            );
        }
        let plan = Plan::new(&small(personality, self.operations))?;
        let settings = Settings { seed: self.seed };
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&lines);
        Sim::new(self.seed).run(|| {
            let note = Box::new(move |line: &str| sink.lock().push(line.to_owned()));
            let recording = Recording::begin(Arc::new(Model::new()), note)?;
            let files = LibraryFiles::new(Arc::new(recording), HostCosts::default());
            let prepared = workload::prepare(&files, &plan, settings)?;
            workload::run(&files, &prepared, &plan, settings, &|| {}).map(drop)
        })?;
        let lines = lines.lock();
        let operations = lines.iter().filter(|line| !line.starts_with('#'));
        operations.map(|line| line.parse().map_err(|_| anyhow!("'{line}' is no operation"))).collect()
    }

    /// The ID of a crash of its trace.
    pub fn name_of(&self, id: &CrashId) -> String {
        let fault = id.workload.fault.map_or_else(String::new, |fault| fault.to_string());
        let id = id.to_string();
        let (subject, _) = id.split_once('/').unwrap_or_default();
        let (_, crash) = id.split_once('@').unwrap_or_default();
        format!("{subject}/{self}{fault}@{crash}")
    }
}

/// Whether threads wait for each other: once the operations are used up, nobody would wake those that wait.
fn waits(personality: &Personality) -> bool {
    personality.groups.iter().flat_map(|group| &group.steps).any(|step| step.semaphore.is_some())
}

/// The same threads' steps on few and small files, one thread in each group, ended by the number of
/// operations.
fn small(mut personality: Personality, operations: u64) -> Personality {
    personality.run = Run { operations: Some(operations), ..Run::default() };
    for set in &mut personality.filesets {
        set.files = set.files.clamp(1, FILES);
        if set.fills_percent.take().is_some() {
            set.size = Size::Bytes(BYTES / set.files);
        }
        let bytes = set.files * set.size.mean();
        if bytes > BYTES {
            set.size = set.size.scaled(BYTES as f64 / bytes as f64);
        }
    }
    for group in &mut personality.groups {
        group.threads = 1;
        for size in group.steps.iter_mut().filter_map(|step| step.size.as_mut()) {
            if let Size::Bytes(bytes) = size {
                *bytes = (*bytes).min(TRANSFER);
            }
        }
    }
    personality
}

impl fmt::Display for Bench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}-{}", self.name, self.operations, self.seed)
    }
}

/// The name of a crash as it is printed: of a numbered workload, or of a benchmark's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrashName {
    /// The crash; of a benchmark's workload, that of its trace.
    pub id: CrashId,
    /// The benchmark's workload.
    pub bench: Option<Bench>,
}

impl FromStr for CrashName {
    type Err = amphi_crashlab::id::IdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some((subject, bench, fault, crash)) = parts(text) else {
            return Ok(Self { id: text.parse()?, bench: None });
        };
        let id = format!("{subject}/{}-0{fault}@{crash}", Kind::Trace).parse()?;
        Ok(Self { id, bench: Some(bench) })
    }
}

/// Subject, benchmark, command that fails and crash of a name that has a benchmark in it.
fn parts(text: &str) -> Option<(&str, Bench, &str, &str)> {
    let (subject, rest) = text.split_once('/')?;
    let (workload, crash) = rest.rsplit_once('@')?;
    let (rest, seed) = workload.rsplit_once('-')?;
    let (seed, fault) = seed.split_at(seed.find('!').unwrap_or(seed.len()));
    let (name, operations) = rest.rsplit_once('.')?;
    let bench =
        Bench { name: name.to_owned(), operations: operations.parse().ok()?, seed: seed.parse().ok()? };
    is_known(name).then_some((subject, bench, fault, crash))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_workload_is_a_trace_that_fits_and_is_the_same_again() {
        for preset in PRESETS {
            let bench = Bench { name: preset.name.to_owned(), operations: 100, seed: 3 };
            if waits(&bench.personality().expect("built in")) {
                assert!(bench.trace().is_err(), "{}", preset.name);
                continue;
            }
            let trace = bench.trace().expect("it can be run");
            let bytes: u64 = trace.iter().map(Operation::bytes).sum();
            assert!(!trace.is_empty() && bytes < 40 << 20, "{}: {bytes} bytes", preset.name);
            let texts = |trace: &[Operation]| trace.iter().map(ToString::to_string).collect::<Vec<_>>();
            assert_eq!(texts(&trace), texts(&bench.trace().expect("again")), "{}", preset.name);
        }
    }

    #[test]
    fn a_name_says_everything_that_makes_the_trace() {
        for text in
            ["bytefs/varmail.200-7@31:m5", "toy/varmail.9-7!5d@0:none", "ext4like/dir/my.toml.50-1@0:none+3"]
        {
            let name: CrashName = text.parse().expect("a valid name");
            let bench = name.bench.expect("a benchmark's");
            assert_eq!(bench.name_of(&name.id), text);
        }
        let plain: CrashName = "bytefs/seq1-17@3:m5".parse().expect("a valid name");
        assert_eq!(plain.bench, None);
        assert!("bytefs/nothing.200-7@31:m5".parse::<CrashName>().is_err());
    }
}
