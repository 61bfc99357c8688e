//! The crash laboratory's part of `cargo xtask test`: a slice of every kind of workload through the command;
//! with `--long`, all sequences of two operations, for both ways in which ByteFS makes data durable, gone on
//! with where the last run was stopped.

use std::path::Path;
use std::process::Command;

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

/// Runs the slice with `amphi`, which is built.
///
/// # Errors
/// At the first violation; its ID has been printed.
pub fn run_slice(amphi: impl Fn() -> Result<Command>) -> Result<()> {
    each(SLICE, |fs, arguments| {
        let mut amphi = amphi()?;
        crash(&mut amphi, fs, arguments);
        Ok(amphi)
    })
}

/// Runs everything, with a program that is built for speed.
///
/// # Errors
/// As [`run_slice`].
pub fn run_all(root: &Path) -> Result<()> {
    let kept = root.join("target/crash-lab");
    std::fs::create_dir_all(&kept).context("cannot make target/crash-lab")?;
    each(COMPLETE, |fs, arguments| {
        let mut amphi = step::cargo(root);
        amphi.args(["run", "--quiet", "--release", "-p", "amphi", "--"]);
        crash(&mut amphi, fs, arguments);
        let workload = arguments[1];
        if workload != "days" {
            amphi.arg("--checkpoint").arg(kept.join(format!("{fs}-{workload}.state")));
        }
        Ok(amphi)
    })
}

fn crash(amphi: &mut Command, fs: &str, arguments: &[&str]) {
    let jobs = std::thread::available_parallelism().map_or(1, usize::from).to_string();
    amphi.args(["crash", "run", "--fs", fs]).args(arguments).args(["--jobs", &jobs]);
}

fn each(all: &[&[&str]], command: impl Fn(&str, &[&str]) -> Result<Command>) -> Result<()> {
    for fs in FILE_SYSTEMS {
        for &arguments in all {
            let title = format!("crash lab: {fs}, {}", arguments[1]);
            step(&title, || step::run(&mut command(fs, arguments)?))?;
        }
    }
    Ok(())
}
