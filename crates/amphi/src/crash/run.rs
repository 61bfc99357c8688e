//! `amphi crash run`: a campaign, with a bar while it works and an honest summary at the end.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use amphi_benchlab::workload::PRESETS;
use amphi_crashlab::campaign::{self, Campaign, Report};
use amphi_crashlab::subject::Subject;
use amphi_crashlab::workload::{Operation, Sequences};
use amphi_crashlab::{Bound, CrashId, Kind, Tally, Violation, days};
use amphi_trace::Trace;
use anyhow::{Context, Result, anyhow, bail};
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;

use super::bench::{self, Bench};
use super::subject_named;

/// The profile of devices where no other is asked for.
pub(super) const USUAL_PROFILE: &str = "free";

/// How many of the legal device states are made at each crash point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Crash {
    /// None: the workload alone, compared with the model.
    None,
    /// Nothing and everything on its way arrived, and a few states between.
    Linear,
    /// All subsets of up to 8 units on their way, and of up to --bound of more; a few torn ones, a few steps
    /// of cleaning and recovery.
    Subsets,
    /// As subsets, with more torn states and the power failing again at every step of recovery.
    Exhaustive,
}

/// What is done to the file system.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Workload {
    /// The laboratory's.
    Own(Own),
    /// A benchmark's.
    Bench(String),
}

/// Reads the name of a workload.
fn workload(name: &str) -> std::result::Result<Workload, String> {
    if let Ok(own) = Own::from_str(name, false) {
        return Ok(Workload::Own(own));
    }
    if bench::is_known(name) {
        return Ok(Workload::Bench(name.to_owned()));
    }
    let own: Vec<String> = Own::value_variants()
        .iter()
        .filter_map(|own| own.to_possible_value().map(|value| value.get_name().to_owned()))
        .collect();
    Err(format!(
        "there are {}; of `amphi bench`: {}; and any FILE.toml",
        own.join(", "),
        PRESETS.iter().map(|preset| preset.name).collect::<Vec<_>>().join(", ")
    ))
}

/// The laboratory's own workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Own {
    /// The 435 sequences of one operation within ACE's bounds.
    Seq1,
    /// The 466,382 sequences of two.
    Seq2,
    /// Sequences of one operation, with what ACE lacks.
    Extra1,
    /// Sequences of two operations that ACE lacks.
    Extra2,
    /// Sequences of two operations, one within ACE's bounds and one that ACE lacks.
    Mixed2,
    /// Sequences of three operations, drawn by seeds.
    Seq3,
    /// Two operations at the same time, drawn by seeds.
    Pairs,
    /// Long random runs on a device whose log and flash are cleaned all the time, drawn by seeds.
    Random,
    /// The operations of --trace.
    Trace,
    /// Simulated time with a power cut every minute.
    Days,
}

/// Runs workloads and crashes them.
#[derive(clap::Args)]
pub struct Options {
    /// The file system.
    #[arg(long, default_value = "bytefs")]
    fs: String,
    /// What it does: seq1, seq2 (the sequences of one and two operations within ACE's bounds), extra1, extra2
    /// (with what ACE lacks), mixed2 (one of each), seq3 (three operations, drawn by seeds), pairs (two at
    /// the same time, drawn by seeds), random (long runs on a device whose log and flash are cleaned all the
    /// time, drawn by seeds), trace (the operations of --trace), days (simulated time with a power cut every
    /// minute), or a workload of `amphi bench` such as varmail, or FILE.toml.
    #[arg(long, value_parser = workload)]
    workload: Workload,
    /// How it is crashed; without it, exhaustive for seq1 and extra1, linear for random, trace and what is a
    /// benchmark's, else subsets.
    #[arg(long)]
    crash: Option<Crash>,
    /// Where more than 8 units are on their way: all subsets of up to so many of them, 0 to 2.
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..=2))]
    bound: Option<u8>,
    /// The first seed of workloads that are drawn by one; the seed of a workload of `amphi bench`.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The first workload of those that are numbered.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// How many workloads; without it, all that are numbered, or 100 seeds. Of a workload of `amphi bench`,
    /// how many operations; without it, 200.
    #[arg(long)]
    count: Option<u64>,
    /// Only workloads whose number is a multiple of this.
    #[arg(long, default_value_t = 1)]
    every: u64,
    /// Runs each workload on devices of which each fails another command, or one in so many: refused; carried
    /// out all the same; refused, and all others from then on, or one in 20 of them. The power is cut after
    /// each operation from the failure on.
    #[arg(long, value_name = "EVERY", num_args = 0..=1, default_missing_value = "1")]
    fail: Option<u64>,
    /// Only one crash point in so many is looked at.
    #[arg(long, default_value_t = 1)]
    one_point_in: u64,
    /// Processors used.
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Keeps in this file what is done, and goes on from there.
    #[arg(long)]
    checkpoint: Option<PathBuf>,
    /// File of operations, one a line, for the workload trace; lines that begin with # are comments.
    #[arg(long)]
    trace: Option<PathBuf>,
    /// Simulated minutes of the workload days.
    #[arg(long, default_value_t = 1440)]
    minutes: u64,
    /// Profile of the SSD; without it, mssd-pcie3 for the workload days, else free, which promises the same.
    #[arg(long)]
    profile: Option<String>,
    /// Ends after so many violations.
    #[arg(long, default_value_t = 10)]
    violations: usize,
    /// One JSON object instead of text.
    #[arg(long)]
    json: bool,
}

/// Runs the campaign and prints what came of it.
///
/// # Errors
/// It cannot be run.
pub fn run(options: &Options) -> Result<ExitCode> {
    let subject = subject_named(&options.fs)?;
    if options.workload == Workload::Own(Own::Days) {
        if options.fail.is_some() {
            bail!("--fail does not go with days; choose another workload");
        }
        return days_of(options, subject);
    }
    let bench = match &options.workload {
        Workload::Own(_) => None,
        Workload::Bench(name) => {
            let operations = options.count.unwrap_or(bench::OPERATIONS);
            Some(Bench { name: name.clone(), operations, seed: options.seed })
        }
    };
    let kind = kind_of(&options.workload);
    if options.fail.is_some() && kind == Kind::Pairs {
        bail!("--fail goes with one operation at a time; choose another workload than pairs");
    }
    let trace = trace_of(options, bench.as_ref())?;
    let campaign = Campaign {
        subject,
        profile: options.profile.clone().unwrap_or_else(|| USUAL_PROFILE.to_owned()),
        kind,
        numbers: numbers_of(options, kind),
        every: options.every,
        bound: bound_of(options),
        fail_every: options.fail,
        jobs: options.jobs,
        most_violations: options.violations,
        trace,
        checkpoint: options.checkpoint.clone(),
    };
    let (from, to) = (campaign.numbers.start, campaign.numbers.end);
    let bar = bar((to - from).div_ceil(options.every.max(1)));
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot wait for signals")?;
    }
    let began = processor_seconds();
    let outcome = campaign::run(
        &campaign,
        &|report| {
            let done = (report.next - from).div_ceil(options.every.max(1));
            bar.set_position(if options.fail.is_some() { done } else { report.tally.workloads });
            let tally = &report.tally;
            bar.set_message(format!("{} crashes, {} violations", tally.crashes(), tally.violations));
        },
        &stop,
    );
    bar.finish_and_clear();
    let report = outcome.map_err(|what| anyhow!(what))?;
    let shown = Shown { bench: bench.as_ref(), profile: &campaign.profile, trace: options.trace.as_deref() };
    print(options, &campaign, &report, processor_seconds() - began, &shown);
    Ok(if report.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

const fn kind_of(workload: &Workload) -> Kind {
    match workload {
        Workload::Own(Own::Seq1) => Kind::Seq1,
        Workload::Own(Own::Seq2) => Kind::Seq2,
        Workload::Own(Own::Extra1) => Kind::Extra1,
        Workload::Own(Own::Extra2) => Kind::Extra2,
        Workload::Own(Own::Mixed2) => Kind::Mixed2,
        Workload::Own(Own::Seq3) => Kind::Seq3,
        Workload::Own(Own::Pairs) => Kind::Pairs,
        Workload::Own(Own::Random) => Kind::Random,
        Workload::Own(Own::Trace | Own::Days) | Workload::Bench(_) => Kind::Trace,
    }
}

fn numbers_of(options: &Options, kind: Kind) -> std::ops::Range<u64> {
    let all = match kind {
        Kind::Seq1 => Some(Sequences::published(1).len()),
        Kind::Seq2 => Some(Sequences::published(2).len()),
        Kind::Extra1 => Some(Sequences::extended(1).len()),
        Kind::Extra2 => Some(Sequences::extended(2).len()),
        Kind::Mixed2 => Some(Sequences::mixed().len()),
        Kind::Trace => return 0..1,
        Kind::Seq3 | Kind::Pairs | Kind::Random => None,
    };
    match all {
        Some(all) => {
            let from = options.from.min(all);
            from..options.count.map_or(all, |count| from.saturating_add(count).min(all))
        }
        None => options.seed..options.seed.saturating_add(options.count.unwrap_or(100)),
    }
}

fn bound_of(options: &Options) -> Bound {
    let usual = match &options.workload {
        Workload::Own(Own::Seq1 | Own::Extra1) => Crash::Exhaustive,
        Workload::Own(Own::Random | Own::Trace) | Workload::Bench(_) => Crash::Linear,
        _ => Crash::Subsets,
    };
    let mut bound = match options.crash.unwrap_or(usual) {
        Crash::None => Bound { one_point_in: u64::MAX, ..Bound::LINEAR },
        Crash::Linear => Bound::LINEAR,
        Crash::Subsets => Bound::SUBSETS,
        Crash::Exhaustive => Bound::EXHAUSTIVE,
    };
    if let Some(size) = options.bound {
        bound.subset_size = usize::from(size);
    }
    if options.one_point_in > 1 {
        bound.one_point_in = options.one_point_in;
    }
    bound
}

fn trace_of(options: &Options, bench: Option<&Bench>) -> Result<Vec<Operation>> {
    match (&options.trace, &options.workload) {
        (Some(path), Workload::Own(Own::Trace)) => read_trace(path),
        (None, Workload::Own(Own::Trace)) => bail!("the workload trace needs --trace FILE"),
        (Some(_), _) => bail!("--trace is for the workload trace"),
        (None, _) => bench.map_or_else(|| Ok(Vec::new()), Bench::trace),
    }
}

/// Reads a file of operations.
pub(super) fn read_trace(path: &Path) -> Result<Vec<Operation>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let trace: Trace = text.parse().with_context(|| path.display().to_string())?;
    Ok(trace.whole())
}

fn bar(length: u64) -> ProgressBar {
    let bar = ProgressBar::new(length);
    let style = ProgressStyle::with_template("[{bar:30}] {pos}/{len} workloads, {msg}, {eta} left");
    bar.set_style(style.expect("the template is well-formed"));
    bar
}

/// Processor time of this process so far.
fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// What a violation's ID needs beside it to be done again.
pub(super) struct Shown<'a> {
    /// The benchmark's workload of which it is.
    pub(super) bench: Option<&'a Bench>,
    /// The profile of the device.
    pub(super) profile: &'a str,
    /// The file of operations.
    pub(super) trace: Option<&'a Path>,
}

impl Shown<'_> {
    fn id(&self, id: &CrashId) -> String {
        self.bench.map_or_else(|| id.to_string(), |bench| bench.name_of(id))
    }

    fn replay(&self, id: &CrashId) -> String {
        let mut command = format!("amphi crash replay '{}'", self.id(id));
        if self.profile != USUAL_PROFILE {
            command += &format!(" --profile {}", self.profile);
        }
        if let Some(trace) = self.trace {
            command += &format!(" --trace '{}'", trace.display());
        }
        command
    }
}

fn print(options: &Options, campaign: &Campaign, report: &Report, processor: f64, shown: &Shown<'_>) {
    let workload = shown.bench.map_or_else(|| campaign.kind.to_string(), Bench::to_string);
    let seconds = report.elapsed_ns as f64 / 1e9;
    if options.json {
        let violations: Vec<_> = report
            .violations
            .iter()
            .map(|violation| {
                json!({
                    "id": shown.id(&violation.id),
                    "operation": violation.operation,
                    "what": violation.what,
                })
            })
            .collect();
        let tally = &report.tally;
        let object = json!({
            "filesystem": campaign.subject.name,
            "workload": workload,
            "from": campaign.numbers.start,
            "to": report.next,
            "complete": report.complete,
            "workloads": tally.workloads,
            "crash_points": tally.points,
            "repeated_points": tally.repeated,
            "states": tally.states,
            "distinct_states": tally.distinct,
            "recovery_crashes": tally.recoveries,
            "failures": tally.failures,
            "gave_up": tally.gave_up,
            "impossible_states": tally.impossible,
            "violations": violations,
            "seconds": seconds,
            "processor_seconds": processor,
        });
        println!("{object}");
        return;
    }
    for violation in &report.violations {
        print_violation(violation, shown);
    }
    let Campaign { subject, numbers, .. } = campaign;
    println!("{} {workload}: {}", subject.name, if report.complete { "complete" } else { "not complete" });
    if !report.complete {
        println!("  done up to number {} of {}", report.next, numbers.end);
    }
    print_tally(&report.tally, campaign.fail_every.is_some());
    let rate = |seconds: f64| report.tally.crashes() as f64 / seconds.max(1e-9);
    println!("  time                {seconds:.1} s ({:.0} crashes/s)", rate(seconds));
    if options.checkpoint.is_none() {
        println!(
            "  processor time      {processor:.1} s ({:.0} crashes/s of one processor)",
            rate(processor)
        );
    }
}

fn print_tally(tally: &Tally, fails: bool) {
    println!("  workloads           {}", tally.workloads);
    if fails {
        println!("  commands failed     {}", tally.failures);
        println!("  read-only then      {}", tally.gave_up);
    }
    println!("  crash points        {}", tally.points);
    println!("  equal to another    {}", tally.repeated);
    println!("  states              {}", tally.states);
    println!("  of them distinct    {}", tally.distinct);
    println!("  crashes in recovery {}", tally.recoveries);
    println!("  states with no room {}", tally.impossible);
    println!("  violations          {}", tally.violations);
}

/// One violation, with what does it again.
pub(super) fn print_violation(violation: &Violation, shown: &Shown<'_>) {
    println!("violation {}", shown.id(&violation.id));
    println!("  {}", violation.operation);
    println!("  {}", violation.what);
    println!("  replay: {}", shown.replay(&violation.id));
}

fn days_of(options: &Options, subject: &Subject) -> Result<ExitCode> {
    let profile = options.profile.as_deref().unwrap_or("mssd-pcie3");
    let bar = ProgressBar::new(options.minutes);
    let style = ProgressStyle::with_template("[{bar:30}] {pos}/{len} minutes, {eta} left");
    bar.set_style(style.expect("the template is well-formed"));
    let began = processor_seconds();
    let days = days::run(subject, profile, options.seed, options.minutes, &|minute| bar.set_position(minute))
        .map_err(|what| anyhow!(what))?;
    bar.finish_and_clear();
    let processor = processor_seconds() - began;
    if options.json {
        let object = json!({
            "filesystem": subject.name,
            "workload": "days",
            "seed": options.seed,
            "minutes": options.minutes,
            "operations": days.operations,
            "power_cuts": days.tally.states,
            "within_operations": days.interrupted,
            "recovery_crashes": days.tally.recoveries,
            "log_cleanings": days.log_cleanings,
            "gc_runs": days.gc_runs,
            "violation": days.violation,
            "processor_seconds": processor,
        });
        println!("{object}");
    } else {
        println!("{} days: {} simulated minutes, seed {}", subject.name, days.tally.points, options.seed);
        println!("  operations          {}", days.operations);
        println!("  power cuts          {}", days.tally.states);
        println!("  within an operation {}", days.interrupted);
        println!("  crashes in recovery {}", days.tally.recoveries);
        println!("  log cleanings       {}", days.log_cleanings);
        println!("  blocks collected    {}", days.gc_runs);
        println!("  violations          {}", days.tally.violations);
        println!("  processor time      {processor:.1} s");
        if let Some(what) = &days.violation {
            println!("violation: {what}");
            println!("  replay: the same command with the same --seed and --minutes");
        }
    }
    Ok(if days.violation.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
