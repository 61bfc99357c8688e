//! SQLite's shell over crashes, in both journal modes: each transaction that `COMMIT` acknowledged is there
//! whole, none in part.

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdout, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Dice, Outcome, Program, Rig, Server, command, expect_count, run, survive};

#[test]
fn sqlite() {
    survive(make);
}

/// `DELETE` commits by removing its journal, and syncs the directory only if asked to: that is durable where
/// names are, as on ByteFS.
pub(super) fn make(dice: Dice) -> Sqlite {
    make_with(dice, &["delete", "wal"], "FULL")
}

/// With a write-ahead log alone.
pub(super) fn make_wal(dice: Dice) -> Sqlite {
    make_with(dice, &["wal"], "FULL")
}

/// For file systems on which a name is durable once its directory is synced: SQLite is asked to.
pub(super) fn make_syncing_names(dice: Dice) -> Sqlite {
    make_with(dice, &["delete", "wal"], "EXTRA")
}

fn make_with(dice: Dice, journals: &[&'static str], synchronous: &'static str) -> Sqlite {
    let database = |&journal: &&'static str| Database { journal, synchronous, transactions: 0 };
    Sqlite { dice, databases: journals.iter().map(database).collect() }
}

/// Rows of each transaction, some of them longer than a page.
const ROWS: u64 = 4;

/// The bytes of row `a`, in SQL: wrong bytes are found by asking for them.
const CONTENT: &str = "substr(hex(a * 7919) || printf('%0*d', 20 + a * 389 % 6000, a), 1)";

struct Database {
    journal: &'static str,
    synchronous: &'static str,
    /// Acknowledged ones. Transaction `n` inserts rows `n * ROWS` and following and sets the counter to `n`.
    transactions: u64,
}

pub(super) struct Sqlite {
    dice: Dice,
    databases: Vec<Database>,
}

impl Program for Sqlite {
    const NAME: &'static str = "SQLite";
    const NEEDS: &'static [&'static str] = &["sqlite3"];
    const IMAGE: &'static str = "512M";
    const OPERATIONS: u64 = 300;

    fn prepare(&mut self, rig: &Rig) -> Outcome<()> {
        std::fs::create_dir(rig.on_mount("sqlite")).map_err(|error| error.to_string())?;
        for database in &self.databases {
            let tables = format!(
                "PRAGMA journal_mode={}; CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT); CREATE INDEX i ON t(b);
                 CREATE TABLE counter(n); INSERT INTO counter VALUES (0);",
                database.journal
            );
            run(database.shell(rig).arg(tables))?;
        }
        Ok(())
    }

    fn work_until_crash(&mut self, rig: &Rig, acknowledged: &AtomicU64) -> Outcome<()> {
        let seeds = [self.dice.next(), self.dice.next()];
        std::thread::scope(|scope| {
            let working: Vec<_> = self
                .databases
                .iter_mut()
                .zip(seeds)
                .map(|(database, seed)| {
                    scope.spawn(move || database.work(rig, acknowledged, Dice::new(seed)))
                })
                .collect();
            working.into_iter().try_for_each(|thread| thread.join().expect("a worker does not panic"))
        })
    }

    fn verify(&mut self, rig: &Rig) -> Outcome<String> {
        for database in &mut self.databases {
            database.verify(rig)?;
        }
        let said =
            |database: &Database| format!("{} transactions by {}", database.transactions, database.journal);
        Ok(self.databases.iter().map(said).collect::<Vec<_>>().join(" and "))
    }
}

impl Database {
    /// SQLite's shell, which ends at the first error.
    fn shell(&self, rig: &Rig) -> std::process::Command {
        let mut shell = command("sqlite3");
        shell.args(["-batch", "-bail"]).arg(rig.on_mount("sqlite").join(format!("{}.db", self.journal)));
        shell
    }

    fn work(&mut self, rig: &Rig, acknowledged: &AtomicU64, mut dice: Dice) -> Outcome<()> {
        let mut shell = self.shell(rig);
        let mut shell =
            Server::start(shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()))?;
        let mut input = shell.0.stdin.take().expect("piped");
        let mut output = BufReader::new(shell.0.stdout.take().expect("piped"));
        // The shell ends when the mount fails, and then neither takes nor says anything.
        let pragmas = "PRAGMA wal_autocheckpoint=100; PRAGMA cache_size=50; SELECT 'ready';";
        if writeln!(input, "PRAGMA synchronous={}; {pragmas}", self.synchronous).is_err() {
            return Ok(());
        }
        while line(&mut output) != "ready" {
            if shell.has_ended() {
                return Ok(());
            }
        }
        loop {
            let number = self.transactions + 1;
            let first = number * ROWS;
            let insert = format!(
                "INSERT INTO t(a) SELECT value FROM generate_series({first}, {}); UPDATE t SET b = {CONTENT} WHERE a >= {first};",
                first + ROWS - 1
            );
            // Old rows are written again now and then, the same as they were: pages all over the file change
            // places.
            let again = format!("UPDATE t SET b = b || '' WHERE a % 31 = {};", dice.below(31));
            let again = if dice.below(4) == 0 { again.as_str() } else { "" };
            let transaction = format!(
                "BEGIN IMMEDIATE; {insert} {again} UPDATE counter SET n = {number}; COMMIT; SELECT {number};"
            );
            if writeln!(input, "{transaction}").is_err() || line(&mut output) != number.to_string() {
                return Ok(());
            }
            self.transactions = number;
            acknowledged.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn verify(&mut self, rig: &Rig) -> Outcome<()> {
        let journal = self.journal;
        let query = format!(
            "PRAGMA integrity_check; SELECT n FROM counter; SELECT count(*) FROM t; SELECT ifnull(max(a), {0}) FROM t;
             SELECT count(*) FROM t WHERE b IS NOT {CONTENT}; PRAGMA journal_mode;",
            ROWS - 1
        );
        let answer = run(self.shell(rig).arg(query))?;
        let lines: Vec<&str> = answer.lines().collect();
        let &["ok", counter, count, last, wrong, mode] = lines.as_slice() else {
            return Err(format!("{journal}: integrity_check and queries say {answer}"));
        };
        let counter: u64 = counter.parse().map_err(|_| format!("{journal}: the counter is {counter}"))?;
        let transactions = self.transactions..=self.transactions + 1;
        self.transactions = expect_count(&format!("{journal}: transactions"), counter, transactions)?;
        let expected = [counter * ROWS, counter * ROWS + ROWS - 1, 0].map(|number| number.to_string());
        if [count, last, wrong] != expected.each_ref().map(String::as_str) || mode != journal {
            return Err(format!(
                "{journal}: {counter} transactions, and {count} rows to number {last}, {wrong} of them wrong, mode {mode}"
            ));
        }
        Ok(())
    }
}

/// The next line; an empty one when there is no more.
fn line(output: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    match output.read_line(&mut line) {
        Ok(_) => line.trim_end().to_owned(),
        Err(_) => String::new(),
    }
}
