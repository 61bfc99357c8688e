//! RocksDB over crashes: `db_bench` writes with a sync after each key; what is found afterwards is, key for
//! key and value for value, what the same run makes elsewhere when it stops after the last acknowledged
//! write, or the one after that.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Dice, Outcome, Program, Rig, Server, command, run, survive};

#[test]
fn rocksdb() {
    survive(make);
}

pub(super) fn make(dice: Dice) -> RocksDb {
    RocksDb { dice, runs: Vec::new() }
}

/// Keys that are written, again and again.
const KEYS: u64 = 5000;

/// One run of `db_bench`: what it writes is decided by its seed.
struct Run {
    seed: u64,
    /// Acknowledged writes; after a check, those that are there.
    writes: u64,
}

pub(super) struct RocksDb {
    dice: Dice,
    /// So far, on one database.
    runs: Vec<Run>,
}

impl Program for RocksDb {
    const NAME: &'static str = "RocksDB";
    const NEEDS: &'static [&'static str] = &["db_bench", "ldb"];
    const IMAGE: &'static str = "1G";
    const OPERATIONS: u64 = 6000;

    fn prepare(&mut self, _rig: &Rig) -> Outcome<()> {
        // The first run makes the database.
        Ok(())
    }

    fn work_until_crash(&mut self, rig: &Rig, acknowledged: &AtomicU64) -> Outcome<()> {
        let seed = 1 + self.dice.below(1 << 30);
        let mode = if self.runs.is_empty() { Mode::Sync } else { Mode::Overwrite };
        let mut bench = bench(&rig.on_mount("rocksdb"), mode, seed);
        bench.args(["--sync=1", "--writes=100000000"]);
        // One line for each write that has returned.
        bench.arg("--stats_interval=1").stdout(Stdio::null()).stderr(Stdio::piped());
        let mut bench = Server::start(&mut bench)?;
        let lines = BufReader::new(bench.0.stderr.take().expect("piped"));
        let mut writes = 0;
        let mut said = String::new();
        for line in lines.lines() {
            let line = line.map_err(|error| format!("db_bench: {error}"))?;
            if line.contains(" ops and ") {
                writes += 1;
                acknowledged.fetch_add(1, Ordering::Relaxed);
            } else {
                said += &line;
            }
        }
        bench.wait()?;
        // It counts a write before it looks whether that has failed.
        writes -= u64::from(said.contains("put error"));
        self.runs.push(Run { seed, writes });
        if writes == 0 { Err(format!("db_bench wrote nothing: {said}")) } else { Ok(()) }
    }

    fn verify(&mut self, rig: &Rig) -> Outcome<String> {
        let database = rig.on_mount("rocksdb");
        let said = run(command("ldb").arg("checkconsistency").arg(db(&database)))?;
        if said != "OK" {
            return Err(format!("ldb checkconsistency says {said}"));
        }
        let found = contents(&database)?;
        let (last, before) = self.runs.split_last_mut().ok_or("no run to check")?;
        let acknowledged = last.writes;
        for writes in [acknowledged, acknowledged + 1] {
            last.writes = writes;
            if found == contents(&reference(rig, before, last)?)? {
                let total: u64 = before.iter().map(|run| run.writes).sum::<u64>() + writes;
                return Ok(format!("{} keys of {total} writes", found.lines().count()));
            }
        }
        let keys = found.lines().count();
        Err(format!("{keys} keys, and not what {acknowledged} writes leave, nor what one more does"))
    }
}

/// What `db_bench` does to a database.
#[derive(Clone, Copy)]
enum Mode {
    /// Makes a new one, with a sync after each write.
    Sync,
    /// Makes a new one, as `Sync` but without syncs.
    Random,
    /// Goes on with one.
    Overwrite,
}

/// `db_bench` on `database`, without an end.
fn bench(database: &Path, mode: Mode, seed: u64) -> Command {
    let mut bench = command("db_bench");
    match mode {
        // It divides the number of keys by a thousand.
        Mode::Sync => bench.args(["--benchmarks=fillsync", &format!("--num={}", KEYS * 1000)]),
        Mode::Random => bench.args(["--benchmarks=fillrandom", &format!("--num={KEYS}")]),
        Mode::Overwrite => {
            bench.args(["--benchmarks=overwrite", "--use_existing_db=1", &format!("--num={KEYS}")])
        }
    };
    bench.args(["--value_size=400", &format!("--seed={seed}")]);
    // Small tables, so that flushes, compactions and deletions of files go on all the time.
    bench.args(["--compression_type=none", "--write_buffer_size=131072", "--target_file_size_base=131072"]);
    bench.arg(db(database));
    bench
}

fn db(database: &Path) -> String {
    format!("--db={}", database.display())
}

/// All keys and values, a line for each.
fn contents(database: &Path) -> Outcome<String> {
    run(command("ldb").args(["scan", "--hex"]).arg(db(database)))
}

/// A database outside the mount with the runs `before` and `last`, made without syncs.
fn reference(rig: &Rig, before: &[Run], last: &Run) -> Outcome<PathBuf> {
    let database = PathBuf::from(rig.path("rocksdb-reference"));
    if database.exists() {
        std::fs::remove_dir_all(&database).map_err(|error| error.to_string())?;
    }
    for (number, Run { seed, writes }) in before.iter().chain([last]).enumerate() {
        let mode = if number == 0 { Mode::Random } else { Mode::Overwrite };
        run(bench(&database, mode, *seed).arg(format!("--writes={writes}")))?;
    }
    Ok(database)
}
