//! The demo where nothing can be mounted: SQLite in one process on the library, with the same crashes and the
//! same table.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::Value;

use super::database::{LoadReport, Verified};
use super::screen::grouped;
use super::table::Table;
use super::{Options, Programs, interrupt};
use crate::step::step;

/// What the driver prints, a line each.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    /// A finished load in one journal mode.
    Load { load: String, report: LoadReport, before: Value, after: Value },
    /// A crash in the middle of a load, and what was there afterwards.
    Crash { crash: String, journal: String, verified: Verified },
}

/// Runs it and prints the table.
pub fn run(programs: &Programs, options: &Options) -> Result<()> {
    println!(
        "SQLite runs inside one process on the library, without a mount; git and tar need one and are left out."
    );
    let directory = tempfile::Builder::new().prefix("amphi-demo-").tempdir()?;
    let mut table = Table::default();
    step("SQLite on the library: loads, host crashes, power losses", || {
        let mut command = Command::new(&programs.sqlite);
        command.arg("in-process").arg("--directory").arg(directory.path());
        command.args(["--profile", &options.profile, "--seed", &options.seed.to_string()]);
        command.args(["--transactions", &options.transactions.to_string()]).stdout(Stdio::piped());
        let mut child = command.spawn().context("the SQLite driver could not be started")?;
        let stdout = child.stdout.take().context("the SQLite driver has no output")?;
        for line in BufReader::new(stdout).lines() {
            show(&serde_json::from_str(&line?)?, &mut table);
        }
        interrupt::check()?;
        if !child.wait()?.success() {
            bail!("SQLite on the library failed");
        }
        Ok(())
    })?;
    println!();
    table.print(&options.profile);
    Ok(())
}

fn show(line: &Line, table: &mut Table) {
    match line {
        Line::Load { load, report, before, after } => {
            println!("    {load}: {:.0} transactions/s", report.rate());
            table.push(report.row(load, before, after));
        }
        Line::Crash { crash, journal, verified } => println!(
            "    {crash} in journal_mode {}: integrity_check ok, {} of {} acknowledged transactions there ({} rows), fsck clean",
            journal.to_uppercase(),
            grouped(verified.acknowledged),
            grouped(verified.acknowledged),
            grouped(verified.rows)
        ),
    }
}
