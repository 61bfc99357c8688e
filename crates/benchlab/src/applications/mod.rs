//! Real applications beside each other in one run: databases that make each write durable, and what is done
//! with trees of files, on ByteFS through
//! FUSE and on the kernel's file systems, over emulated SSDs with the device's own times and over memory.
//!
//! - `place` the file systems
//! - `programs` the applications that are one program each: RocksDB, LevelDB, SQLite
//! - `trees` what asks for no durability: a source tree, a large directory
//! - `servers` those that are a server and a client: Redis, PostgreSQL
//! - `run` rounds in which every file system gets its turn
//! - `report` what came of it

mod place;
mod programs;
mod report;
mod run;
mod servers;
mod trees;

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::remote;

pub use report::{Application, Outcome, PlaceReport, Ratio, Report, SCHEMA};
pub use run::{Progress, Settings, run};

/// An application that can be started in a directory.
pub trait Program {
    /// Its name on the command line and in reports.
    fn name(&self) -> &'static str;

    /// What one round does.
    fn description(&self) -> &'static str;

    /// Makes what the rounds need in an empty directory.
    ///
    /// # Errors
    /// It is not installed, or fails.
    fn start(&self, at: &Site<'_>) -> Result<Box<dyn Rounds>>;
}

/// What an application's commits wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commits {
    /// Each is durable before the next begins.
    Durable,
    /// Nothing: the program's own setting for commits that a power loss may take.
    Asynchronous,
}

/// Where an application works.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    /// An empty directory on the file system.
    pub directory: &'a Path,
    /// An empty directory in memory, for sockets and logs.
    pub scratch: &'a Path,
    /// The program `amphi`, if what works there is run as `amphi run` does.
    pub preloaded_by: Option<&'a Path>,
    /// What its commits wait for.
    pub commits: Commits,
}

/// An application that works.
pub trait Rounds {
    /// One round of about `operations` durable writes; how many it did a second.
    ///
    /// # Errors
    /// It fails.
    fn round(&mut self, operations: u64) -> Result<f64>;
}

/// Every application, with the writes of a round: enough that it takes 50 ms where it is fastest, and
/// that logs have wrapped.
fn all() -> Vec<(Box<dyn Program>, u64)> {
    vec![
        (Box::new(programs::RocksDb), 20_000),
        (Box::new(programs::LevelDb), 20_000),
        (Box::new(programs::Sqlite), 10_000),
        (Box::new(servers::Redis), 20_000),
        (Box::new(servers::Postgres), 2000),
        (Box::new(trees::Unpack), 1000),
        (Box::new(trees::Git), 1000),
        (Box::new(trees::Remove), 1000),
        (Box::new(trees::List), 10_000),
    ]
}

/// The names of all applications, and what each does.
#[must_use]
pub fn list() -> Vec<(&'static str, &'static str)> {
    all().iter().map(|(program, _)| (program.name(), program.description())).collect()
}

/// The number before `unit` in what a program printed.
fn number_before(printed: &str, unit: &str) -> Option<f64> {
    let words: Vec<&str> = printed.split_whitespace().collect();
    let at = words.iter().position(|word| *word == unit)?;
    words.get(at.checked_sub(1)?)?.parse().ok()
}

/// A program that is killed when this process is; as another user, if `user` is one; and as `amphi run` runs
/// it, if `preloaded_by` is the program `amphi`.
fn command(program: &Path, user: Option<&str>, preloaded_by: Option<&Path>) -> Result<Command> {
    let mut command = Command::new("setpriv");
    if let Some(amphi) = preloaded_by {
        remote::preload(&mut command, amphi)?;
    }
    if let Some(user) = user {
        command.args(["--reuid", user, "--regid", user, "--clear-groups"]);
    }
    command.args(["--pdeathsig", "KILL"]).arg(program);
    Ok(command)
}
