//! `amphi crash`: pulls the plug on a file system everywhere, does one crash again, explains it.

mod bench;
mod replay;
mod run;

use std::process::ExitCode;

use amphi_crashlab::subject::{self, Subject};
use anyhow::{Result, anyhow};
use clap::Subcommand;

/// Crashes a file system at every point of a workload and looks at what each crash leaves.
///
/// It runs in memory and in virtual time on an emulated SSD of its own. Every crash has an ID that does it
/// again.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  amphi crash run --fs bytefs --workload seq1                    every operation, with every sync
  amphi crash run --fs bytefs --workload seq2 --checkpoint seq2.state --jobs 4
  amphi crash run --fs bytefs --workload random --seed 7 --count 100
  amphi crash run --fs bytefs --workload days --minutes 1440     a power cut every minute of a day
  amphi crash run --fs bytefs --workload varmail --seed 1 --count 200
  amphi crash replay bytefs/seq1-17@3:m5
  amphi crash explain bytefs/seq1-17@3:m5 --html crash.html")]
pub struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Options),
    Replay(replay::ReplayOptions),
    Explain(replay::ExplainOptions),
}

/// Does what is asked. Exit code 1 says that a violation was found.
///
/// # Errors
/// It cannot be done.
pub fn run(options: &Options) -> Result<ExitCode> {
    match &options.command {
        Command::Run(options) => run::run(options),
        Command::Replay(options) => replay::replay(options),
        Command::Explain(options) => replay::explain(options),
    }
}

fn subject_named(name: &str) -> Result<&'static Subject> {
    subject::named(name).ok_or_else(|| {
        anyhow!(
            "no file system called '{name}' can be crashed; there are: {}",
            subject::ALL.map(|subject| subject.name).join(", ")
        )
    })
}
