//! SQLite as the demo and the tests drive it: single-row transactions with their latencies, a log of the
//! acknowledged ones kept outside the file system under test, and the check that every one of them is still
//! there.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "drives a real program in real time")]

mod bridge;
mod in_process;
mod load;
mod row;
mod storage;
mod verify;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Runs SQLite transactions, and checks them.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Inserts rows, one transaction each, and reports latencies.
    Load(load::Options),
    /// Checks the database's integrity and that every acknowledged row is there.
    Verify(verify::Options),
    /// Does all of it, with crashes, on the library alone: no mount.
    InProcess(in_process::Options),
}

/// The exit code of a load that the storage ended: what a crash test expects to see.
const INTERRUPTED: u8 = 3;

fn main() -> ExitCode {
    let outcome = match Arguments::parse().task {
        Task::Load(options) => load::run(&options),
        Task::Verify(options) => verify::run(&options),
        Task::InProcess(options) => in_process::run(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sqlite-driver: {error:#}");
            ExitCode::from(if error.is::<load::Interrupted>() { INTERRUPTED } else { 1 })
        }
    }
}
