//! `cargo xtask test`: lint, documentation, every test of the workspace, with what is being done and for how
//! long.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::Result;
use clap::ValueEnum;

use crate::built::{self, Built, TestProgram};
use crate::step::{self, step};
use crate::{crash_lab, external_suites, lint, packages, planted_rows, test_programs};

/// What `cargo xtask test` takes.
#[derive(clap::Args)]
pub struct Options {
    /// The longer settings of the tests that have them.
    #[arg(long)]
    long: bool,
    /// One part alone.
    #[arg(long, value_name = "WHAT")]
    only: Option<Part>,
    /// The first iteration of the crash loops and of the programs; without it, 1.
    #[arg(long)]
    seed: Option<u64>,
    /// How many iterations each crash loop does; without it, 200, or 2000 with --long. Of the programs, each
    /// does 4, or 40.
    #[arg(long)]
    iterations: Option<u64>,
}

/// The parts, in the order in which they run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Rules of the house, rustfmt, clippy.
    Lint,
    /// Documentation builds without warnings.
    Docs,
    /// Unit, property and end-to-end tests of every crate, without the crash loops, external suites and
    /// programs.
    Tests,
    /// Faults planted in what rows of docs/papers.md promise, each of which the row's test must notice.
    Rows,
    /// A million power cuts and host crashes of the emulated SSD.
    PowerCuts,
    /// A slice of the crash laboratory's workloads; with --long, all sequences of two operations, which takes
    /// hours and can be gone on with.
    CrashLab,
    /// pjdfstest, fsx, stress-ng and dbench on a mount.
    Suites,
    /// PostgreSQL, RocksDB, Redis, SQLite, git and a C build on a mount whose daemon is killed and whose
    /// device loses its power.
    Programs,
    /// A mounted file system's daemon is killed again and again.
    KillLoop,
    /// A mounted file system's device loses its power again and again.
    PowerLoop,
}

const PARTS: [Part; 10] = [
    Part::Lint,
    Part::Docs,
    Part::Tests,
    Part::Rows,
    Part::PowerCuts,
    Part::CrashLab,
    Part::Suites,
    Part::Programs,
    Part::KillLoop,
    Part::PowerLoop,
];

/// Runs the parts asked for.
///
/// # Errors
/// At the first part that fails.
pub fn run(root: &Path, options: &Options) -> Result<()> {
    let start = Instant::now();
    packages::ensure(&packages::ALL)?;
    packages::ensure_for_root()?;
    if let Some(reason) = packages::why_no_fuse() {
        println!("note: nothing can be mounted here, so end-to-end tests will be skipped: {reason}");
    }
    let (mut done, mut built) = (0, None);
    for part in PARTS.into_iter().filter(|part| options.only.is_none_or(|only| only == *part)) {
        run_part(root, part, options, &mut built)?;
        done += 1;
    }
    println!("all well: {done} parts in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

fn run_part(root: &Path, part: Part, options: &Options, built: &mut Option<Built>) -> Result<()> {
    match part {
        Part::Lint => lint::run(root, &lint::Options { rules_only: false }),
        Part::Docs => step("documentation", || {
            let mut doc = step::cargo(root);
            doc.args(["doc", "--quiet", "--workspace", "--no-deps"]);
            doc.env(
                "RUSTDOCFLAGS",
                "-D rustdoc::broken_intra_doc_links -D rustdoc::private_intra_doc_links \
                 -D rustdoc::invalid_html_tags -D rustdoc::bare_urls",
            );
            step::run(&mut doc)
        }),
        Part::PowerCuts => step("a million power cuts of the SSD", || {
            let cuts = if options.long { "10000000" } else { "1000000" };
            let program = TestProgram::for_speed(root, "amphi-ssd", "power_cuts")?;
            test_programs::run_apart(&program, |test| {
                with(options, test).env("AMPHI_CUTS", cuts);
            })
        }),
        Part::CrashLab if options.long => crash_lab::run_all(root),
        _ => {
            let built = match built {
                Some(built) => built,
                None => built.insert(step("tests and programs", || Built::make(root))?),
            };
            run_built(root, part, options, built)
        }
    }
}

/// Runs a part that needs nothing but what the tests have built.
fn run_built(root: &Path, part: Part, options: &Options, built: &Built) -> Result<()> {
    let end_to_end = || built.test("amphi", "end_to_end");
    match part {
        Part::Tests => {
            packages::ensure(&packages::BROWSER)?;
            step("unit, property and end-to-end tests", || {
                test_programs::run(&built.all_tests, |test| {
                    with(options, test);
                })
            })?;
            step("examples in the documentation", || {
                let mut test = step::cargo(root);
                test.args(["test", "--quiet", "--doc"]);
                built::whole_workspace(root, &mut test)?;
                step::run(with(options, &mut test))
            })
        }
        Part::Rows => planted_rows::run(built),
        Part::CrashLab => crash_lab::run_slice(|| built.program("amphi")),
        Part::Suites => external_suites::run(root, built, |test| {
            with(options, test);
        }),
        Part::Programs => programs(options, end_to_end()?),
        Part::KillLoop => crash_loop("kill -9 loop", options, end_to_end()?, "crash_loops::kill_loop"),
        Part::PowerLoop => crash_loop("power-cut loop", options, end_to_end()?, "crash_loops::power_loop"),
        Part::Lint | Part::Docs | Part::PowerCuts => unreachable!("{part:?} builds for itself"),
    }
}

/// Where nothing can be mounted, says why and succeeds.
fn programs(options: &Options, mut test: Command) -> Result<()> {
    if let Some(reason) = packages::why_no_fuse() {
        println!("skipped: programs over crashes: {reason}");
        return Ok(());
    }
    packages::ensure(&packages::PROGRAMS)?;
    step("programs over crashes", || {
        // Two at a time: one alone leaves the processors idle for two fifths of the time.
        test.args(["program_crashes::", "--nocapture", "--test-threads=2"]);
        step::run(with(options, &mut test))
    })
}

fn crash_loop(title: &str, options: &Options, mut test: Command, name: &str) -> Result<()> {
    step(title, || step::run(with(options, test.args(["--exact", name, "--nocapture"]))))
}

/// Tells tests what was asked for.
fn with<'a>(options: &Options, test: &'a mut Command) -> &'a mut Command {
    if options.long {
        test.env("AMPHI_TEST_LONG", "1");
    }
    for (name, value) in [("AMPHI_LOOP_SEED", options.seed), ("AMPHI_LOOP_ITERATIONS", options.iterations)] {
        if let Some(value) = value {
            test.env(name, value.to_string());
        }
    }
    test
}
