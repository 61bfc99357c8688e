//! Developer tasks: `cargo xtask lint | test | demo | figures`. They run real programs in real time, so the
//! rule that keeps clocks and threads behind `amphi_rt` does not bind them.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod built;
mod crash_lab;
mod demo;
mod external_suites;
mod figures;
mod lint;
mod packages;
mod planted_rows;
mod step;
mod suite;
mod test_programs;
mod workers;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Developer tasks of Amphi.
#[derive(Parser)]
#[command(bin_name = "cargo xtask", disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Checks the rules of the house, formatting, and clippy.
    Lint(lint::Options),
    /// Runs SQLite, git and tar on a mounted emulated SSD, kills and cuts its power, and shows what it cost.
    Demo(demo::Options),
    /// Regenerates the figures in docs/results from experiments in virtual time.
    Figures(figures::Options),
    /// Runs everything that continuous integration runs.
    Test(suite::Options),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().task {
        Task::Demo(options) => demo::run(&root(), &options),
        Task::Figures(options) => figures::run(&root(), &options),
        Task::Lint(options) => lint::run(&root(), &options),
        Task::Test(options) => suite::run(&root(), &options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The workspace's directory, whatever the current one is.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is inside the workspace").to_owned()
}
