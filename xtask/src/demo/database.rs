//! SQLite: single-row transactions in both journal modes, and the driver under it that later is interrupted.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::Value;

use super::screen::{Progress, grouped};
use super::stage::Stage;
use super::table::{Row, Table};
use super::{Programs, interrupt};
use crate::step::step;

/// Both of SQLite's journal modes: a rollback journal deleted at each commit, and a write-ahead log.
pub const JOURNAL_MODES: [&str; 2] = ["delete", "wal"];

/// What the driver reports of a finished load.
#[derive(Deserialize)]
pub struct LoadReport {
    transactions: u64,
    seconds: f64,
    p50_us: f64,
    p99_us: f64,
}

impl LoadReport {
    /// Transactions in a second.
    pub fn rate(&self) -> f64 {
        self.transactions as f64 / self.seconds
    }

    /// The load as a row of the table, between two answers of `amphi stats --json`.
    pub fn row(&self, journal: &str, before: &Value, after: &Value) -> Row {
        let name = format!("SQLite {}", journal.to_uppercase());
        Row::new(&name, self.transactions, self.seconds, before, after).latencies(self.p50_us, self.p99_us)
    }
}

/// A load that is running.
pub struct Load {
    child: Child,
    lines: BufReader<ChildStdout>,
}

/// What a running load says next.
pub enum Said {
    /// This many transactions are acknowledged.
    Done(u64),
    /// The report of the whole load.
    Report(String),
    /// Nothing: it has ended.
    End,
}

impl Load {
    /// Starts `transactions` single-row transactions on the database at `db`.
    pub fn start(
        programs: &Programs,
        db: &Path,
        journal: &str,
        transactions: u64,
        acknowledged: &Path,
    ) -> Result<Self> {
        let mut command = Command::new(&programs.sqlite);
        command.arg("load").arg("--db").arg(db).args(["--journal", journal, "--progress", "100"]);
        command.arg("--transactions").arg(transactions.to_string()).arg("--acknowledged").arg(acknowledged);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("the SQLite driver could not be started")?;
        let lines = BufReader::new(child.stdout.take().context("the SQLite driver has no output")?);
        Ok(Self { child, lines })
    }

    /// Waits for the next thing it says.
    pub fn next(&mut self) -> Result<Said> {
        interrupt::check()?;
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        let line = line.trim();
        Ok(match line.parse() {
            Ok(done) => Said::Done(done),
            Err(_) if line.is_empty() => Said::End,
            Err(_) => Said::Report(line.to_owned()),
        })
    }

    /// Waits for its end; true if it came to a regular one. The text is what it complained of.
    pub fn end(mut self) -> Result<(bool, String)> {
        let mut complaint = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            std::io::Read::read_to_string(&mut stderr, &mut complaint)?;
        }
        Ok((self.child.wait()?.success(), complaint.trim().to_owned()))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // After a regular end there is nothing to kill, and both calls say so.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the transactions on the mounted file system in both journal modes.
pub fn run(stage: &Stage, programs: &Programs, transactions: u64, table: &mut Table) -> Result<()> {
    step(&format!("SQLite, {} single-row transactions each, synchronous=FULL", grouped(transactions)), || {
        for journal in JOURNAL_MODES {
            let db = stage.mount_point().join(format!("{journal}.db"));
            let acknowledged = stage.outside(&format!("{journal}.acknowledged"));
            let before = stage.stats()?;
            let report = load(programs, &db, journal, transactions, &acknowledged)?;
            table.push(report.row(journal, &before, &stage.stats()?));
            verify(programs, &db, &acknowledged)?;
            println!("    {journal}: {:.0} transactions/s, integrity_check ok", report.rate());
        }
        Ok(())
    })
}

fn load(
    programs: &Programs,
    db: &Path,
    journal: &str,
    transactions: u64,
    acknowledged: &Path,
) -> Result<LoadReport> {
    let mut progress = Progress::new(&format!("journal_mode {}", journal.to_uppercase()));
    let mut load = Load::start(programs, db, journal, transactions, acknowledged)?;
    let mut report = None;
    loop {
        match load.next()? {
            Said::Done(done) => progress.show(&format!("{} of {}", grouped(done), grouped(transactions))),
            Said::Report(text) => report = Some(text),
            Said::End => break,
        }
    }
    let (regular, complaint) = load.end()?;
    match report {
        Some(report) if regular => Ok(serde_json::from_str(&report)?),
        _ => bail!("SQLite failed: {complaint}"),
    }
}

/// What the driver found in a database that is sound and complete.
#[derive(Deserialize)]
pub struct Verified {
    /// Acknowledged transactions, all of which are there.
    pub acknowledged: u64,
    /// All transactions there.
    pub rows: u64,
}

/// Checks the database and that every acknowledged transaction is there.
pub fn verify(programs: &Programs, db: &Path, acknowledged: &Path) -> Result<Verified> {
    let mut command = Command::new(&programs.sqlite);
    command.arg("verify").arg("--db").arg(db).arg("--acknowledged").arg(acknowledged);
    Ok(serde_json::from_str(&crate::step::output(&mut command)?)?)
}
