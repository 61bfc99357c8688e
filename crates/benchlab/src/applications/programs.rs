//! Applications that are one program: it makes its database in the first round and goes on with a new one in
//! each.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use amphi_rt::time;
use anyhow::{Context, Result, ensure};

use super::{Commits, Program, Rounds, Site, command, number_before};
use crate::peers::output;

/// RocksDB's own benchmark.
pub(super) struct RocksDb;

/// LevelDB, by a small program of ours that does what its benchmark does: Debian has the library, not the
/// benchmark.
pub(super) struct LevelDb;

/// SQLite's shell.
pub(super) struct Sqlite;

impl Program for RocksDb {
    fn name(&self) -> &'static str {
        "rocksdb"
    }

    fn description(&self) -> &'static str {
        "RocksDB, db_bench fillsync: 16 B keys in random order, 100 B values, each synced"
    }

    fn start(&self, at: &Site<'_>) -> Result<Box<dyn Rounds>> {
        Ok(Box::new(FillSync {
            preloaded_by: at.preloaded_by.map(Path::to_owned),
            program: PathBuf::from("db_bench"),
            database: at.directory.join("rocksdb"),
            // It divides the number of keys by a thousand, but not that of the writes.
            arguments: |operations, database, commits| {
                let (benchmark, num) = match commits {
                    Commits::Durable => ("fillsync", operations * 1000),
                    Commits::Asynchronous => ("fillrandom", operations),
                };
                vec![
                    format!("--benchmarks={benchmark}"),
                    format!("--num={num}"),
                    format!("--writes={operations}"),
                    "--compression_type=none".to_owned(),
                    format!("--db={database}"),
                ]
            },
            commits: at.commits,
        }))
    }
}

/// What [`LevelDb`] compiles.
const LEVELDB_SOURCE: &str = include_str!("leveldb_fillsync.c");

impl Program for LevelDb {
    fn name(&self) -> &'static str {
        "leveldb"
    }

    fn description(&self) -> &'static str {
        "LevelDB, as its db_bench fillsync: 16 B keys in random order, 100 B values, each synced"
    }

    fn start(&self, at: &Site<'_>) -> Result<Box<dyn Rounds>> {
        let (source, program) = (at.scratch.join("fillsync.c"), at.scratch.join("fillsync"));
        std::fs::write(&source, LEVELDB_SOURCE)?;
        output(Command::new("cc").arg("-O2").arg("-o").arg(&program).arg(&source).arg("-lleveldb"))
            .context("LevelDB's library is needed (Debian: libleveldb-dev), and a C compiler")?;
        Ok(Box::new(FillSync {
            preloaded_by: at.preloaded_by.map(Path::to_owned),
            program,
            database: at.directory.join("leveldb"),
            arguments: |operations, database, commits| {
                let commits = if commits == Commits::Durable { "synced" } else { "unsynced" };
                vec![database.to_owned(), operations.to_string(), commits.to_owned()]
            },
            commits: at.commits,
        }))
    }
}

/// Rounds of a program that makes a new database and prints `… ops/sec`.
struct FillSync {
    preloaded_by: Option<PathBuf>,
    program: PathBuf,
    database: PathBuf,
    arguments: fn(u64, &str, Commits) -> Vec<String>,
    commits: Commits,
}

impl Rounds for FillSync {
    fn round(&mut self, operations: u64) -> Result<f64> {
        if self.database.exists() {
            std::fs::remove_dir_all(&self.database)?;
        }
        let database = self.database.to_str().context("the path is not valid UTF-8")?;
        let mut command = command(&self.program, None, self.preloaded_by.as_deref())?;
        let printed = output(command.args((self.arguments)(operations, database, self.commits)))?;
        number_before(&printed, "ops/sec").with_context(|| format!("no rate in: {}", printed.trim()))
    }
}

impl Program for Sqlite {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn description(&self) -> &'static str {
        "SQLite, journal_mode=WAL synchronous=FULL: one insert of 100 B a transaction"
    }

    fn start(&self, at: &Site<'_>) -> Result<Box<dyn Rounds>> {
        let preloaded_by = at.preloaded_by.map(Path::to_owned);
        let (database, script) = (at.directory.join("sqlite.db"), at.scratch.join("script.sql"));
        let shell = Shell { database, script, preloaded_by, commits: at.commits };
        shell.run("PRAGMA journal_mode=WAL; CREATE TABLE t(a INTEGER PRIMARY KEY, b BLOB);")?;
        Ok(Box::new(shell))
    }
}

struct Shell {
    database: PathBuf,
    /// What it reads: a file, since one that fills a pipe for it would take a processor.
    script: PathBuf,
    preloaded_by: Option<PathBuf>,
    commits: Commits,
}

impl Shell {
    fn run(&self, script: &str) -> Result<()> {
        std::fs::write(&self.script, script)?;
        self.run_script()
    }

    fn run_script(&self) -> Result<()> {
        let said = command(Path::new("sqlite3"), None, self.preloaded_by.as_deref())?
            .arg(&self.database)
            .stdin(File::open(&self.script)?)
            .output()
            .context("sqlite3 cannot be run; install it")?;
        ensure!(said.status.success(), "sqlite3: {}", String::from_utf8_lossy(&said.stderr).trim());
        Ok(())
    }
}

impl Rounds for Shell {
    fn round(&mut self, operations: u64) -> Result<f64> {
        let insert = "INSERT INTO t(b) VALUES (randomblob(100));\n".repeat(operations as usize);
        // What is NORMAL syncs the log before a checkpoint only.
        let synchronous = if self.commits == Commits::Durable { "FULL" } else { "NORMAL" };
        std::fs::write(&self.script, format!("PRAGMA synchronous={synchronous};\n{insert}"))?;
        let begin = time::now_ns();
        self.run_script()?;
        Ok(operations as f64 * 1e9 / (time::now_ns() - begin) as f64)
    }
}
