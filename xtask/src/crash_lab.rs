//! The crash laboratory's part of `cargo xtask test`: a slice of every kind of workload through the command;
//! with `--long`, all sequences of two operations, for both ways in which ByteFS makes data durable, gone on
//! with where the last run was stopped.

use std::path::Path;

use anyhow::{Context, Result};

use crate::step::{self, step};

/// The file systems that are crashed.
const FILE_SYSTEMS: [&str; 2] = ["bytefs", "bytefs-journal"];

/// The slice: what follows `amphi crash run --fs NAME`.
const SLICE: &[&[&str]] = &[
    &["--workload", "seq1", "--crash", "subsets"],
    &["--workload", "extra1", "--crash", "subsets"],
    &["--workload", "seq2", "--every", "401"],
    &["--workload", "mixed2", "--every", "2003"],
    &["--workload", "pairs", "--count", "150"],
    &["--workload", "random", "--count", "12", "--one-point-in", "6"],
    // What a seed does not bring about another may.
    &["--workload", "days", "--minutes", "40", "--seed", "1"],
    &["--workload", "days", "--minutes", "40", "--seed", "7"],
    &["--workload", "days", "--minutes", "40", "--seed", "23"],
];

/// Everything that can be complete.
const COMPLETE: &[&[&str]] = &[
    &["--workload", "seq1"],
    &["--workload", "extra1"],
    &["--workload", "seq2"],
    &["--workload", "extra2"],
    &["--workload", "mixed2"],
    &["--workload", "seq3", "--count", "20000"],
    &["--workload", "random", "--count", "200"],
    &["--workload", "days", "--minutes", "480", "--seed", "1"],
    &["--workload", "days", "--minutes", "480", "--seed", "7"],
    &["--workload", "days", "--minutes", "480", "--seed", "23"],
];

/// Runs the slice, or with `long` everything.
///
/// # Errors
/// At the first violation; its ID has been printed.
pub fn run(root: &Path, long: bool) -> Result<()> {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from).to_string();
    let kept = root.join("target/crash-lab");
    std::fs::create_dir_all(&kept).context("cannot make target/crash-lab")?;
    for fs in FILE_SYSTEMS {
        for &arguments in if long { COMPLETE } else { SLICE } {
            let workload = arguments[1];
            step(&format!("crash lab: {fs}, {workload}"), || {
                let mut command = step::cargo(root);
                command.args([
                    "run",
                    "--quiet",
                    "--release",
                    "-p",
                    "amphi",
                    "--",
                    "crash",
                    "run",
                    "--fs",
                    fs,
                ]);
                command.args(arguments).args(["--jobs", &jobs]);
                if long && workload != "days" {
                    command.arg("--checkpoint").arg(kept.join(format!("{fs}-{workload}.state")));
                }
                step::run(&mut command)
            })?;
        }
    }
    Ok(())
}
