//! Inserting rows: one transaction a row, `synchronous=FULL`, each acknowledged in a log only after its
//! COMMIT returned.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use rusqlite::{Connection, params};
use serde::Serialize;

use crate::row;

/// What `load` takes.
#[derive(clap::Args)]
pub struct Options {
    /// The database file; made if it is not there.
    #[arg(long)]
    db: PathBuf,
    /// `delete` or `wal`.
    #[arg(long, default_value = "delete")]
    journal: String,
    /// Rows to insert; they follow those that are there.
    #[arg(long, default_value_t = 10_000)]
    transactions: u64,
    /// A file, not on the storage under test, to which the number of each committed row is appended.
    #[arg(long)]
    acknowledged: Option<PathBuf>,
    /// Prints how many transactions are done, a line every this many.
    #[arg(long)]
    progress: Option<u64>,
}

/// The storage failed in the middle of a load.
#[derive(Debug)]
pub struct Interrupted {
    committed: u64,
    cause: rusqlite::Error,
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "interrupted after {} transactions: {}", self.committed, self.cause)
    }
}

impl std::error::Error for Interrupted {}

/// A transaction that takes longer than a minute counts as one that takes a minute.
const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// What a finished load prints, as one line of JSON. Times are of the client, COMMIT included.
#[derive(Debug, Serialize)]
pub struct Report {
    transactions: u64,
    seconds: f64,
    p50_us: f64,
    p99_us: f64,
    max_us: f64,
}

/// Runs the load and prints its report.
///
/// # Errors
/// [`Interrupted`] when a transaction fails; anything else when the load could not start.
pub fn run(options: &Options) -> Result<()> {
    let connection = Connection::open(&options.db)
        .with_context(|| format!("{} cannot be opened", options.db.display()))?;
    let mut load = Load {
        journal: &options.journal,
        transactions: options.transactions,
        log: options.acknowledged.as_deref().map(AcknowledgementLog::open).transpose()?,
        progress: options.progress,
    };
    println!("{}", serde_json::to_string(&load.run(&connection)?)?);
    Ok(())
}

/// A load to run on a connection.
pub struct Load<'a> {
    /// SQLite's journal mode.
    pub journal: &'a str,
    /// Rows to insert.
    pub transactions: u64,
    /// Where to acknowledge them.
    pub log: Option<AcknowledgementLog>,
    /// Print a line every this many.
    pub progress: Option<u64>,
}

impl Load<'_> {
    /// Inserts the rows.
    ///
    /// # Errors
    /// As [`run`].
    pub fn run(&mut self, connection: &Connection) -> Result<Report> {
        self.set_up(connection)?;
        let first: i64 =
            connection.query_row("SELECT coalesce(max(id), 0) + 1 FROM entry", [], |row| row.get(0))?;
        let mut insert = connection.prepare("INSERT INTO entry (id, payload) VALUES (?1, ?2)")?;
        let mut latencies = Histogram::<u64>::new_with_bounds(1, LATENCY_NS_MAX, 3)?;
        let start = Instant::now();
        for done in 0..self.transactions {
            let id = first + done as i64;
            let begin = Instant::now();
            // Outside BEGIN … COMMIT every statement is a transaction of its own.
            insert
                .execute(params![id, row::payload(id)])
                .map_err(|cause| Interrupted { committed: done, cause })?;
            latencies.saturating_record(begin.elapsed().as_nanos() as u64);
            if let Some(log) = &mut self.log {
                log.append(id)?;
            }
            if self.progress.is_some_and(|every| (done + 1) % every == 0) {
                println!("{}", done + 1);
            }
        }
        let us = |ns: u64| ns as f64 / 1000.0;
        Ok(Report {
            transactions: self.transactions,
            seconds: start.elapsed().as_secs_f64(),
            p50_us: us(latencies.value_at_quantile(0.5)),
            p99_us: us(latencies.value_at_quantile(0.99)),
            max_us: us(latencies.max()),
        })
    }

    fn set_up(&self, connection: &Connection) -> Result<()> {
        let journal = self.journal;
        let mode: String =
            connection.query_row(&format!("PRAGMA journal_mode={journal}"), [], |row| row.get(0))?;
        ensure!(
            mode.eq_ignore_ascii_case(journal),
            "SQLite refused journal_mode={journal} and stays with {mode}"
        );
        connection.execute_batch("PRAGMA synchronous=FULL")?;
        connection.execute_batch(row::CREATE_TABLE)?;
        Ok(())
    }
}

/// The numbers of the committed rows, eight bytes each. Written at once, so they outlive this process.
pub struct AcknowledgementLog(File);

impl AcknowledgementLog {
    /// Opens the log at `path`, to append to it.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        Ok(Self(file.with_context(|| format!("{} cannot be written", path.display()))?))
    }

    fn append(&mut self, id: i64) -> Result<()> {
        self.0.write_all(&id.to_le_bytes()).context("the acknowledgement log cannot be written")
    }
}
