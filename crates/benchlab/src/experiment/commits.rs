//! How fast databases are whose commits write their log by blocks, by bytes into a BA-buffer, or not before
//! they return: 2B-SSD figures 9 and 10.
//!
//! A database is what `workloads/logs.toml` says: sessions that compute and, for some of their
//! transactions, append so many bytes and commit. The log is crate `wal`'s, in each of its modes; sessions
//! that commit at once share a write, as in the real programs. All user data are in memory, as in the paper.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use amphi_device::{EntryId, Lpa};
use amphi_rt::cpu::{self, HostProfile};
use amphi_rt::random::Generator;
use amphi_rt::{Sim, task, time};
use amphi_ssd::{Firmware, OpenOptions, Profile, Ssd};
use amphi_wal::{Log, Mode, Options, Place, Recovery, create};
use anyhow::{Context, Result, anyhow, bail};
use serde::Deserialize;

use super::definition::Variation;
use super::measure::bar;
use crate::figure::{Bar, Group};

const TEXT: &str = include_str!("../../../../workloads/logs.toml");
/// For so long a database works, at scale 1, in ns.
const WORK_NS: u64 = 1_000_000_000;
const MIB: u64 = 1 << 20;
/// A log begins anew when so much of it is written, so that it never is full.
const LOG_BYTES: u64 = 256 * MIB;
const PAGE: u64 = 4096;
/// Each of the log's two halves (2B-SSD §IV-B, double buffering); together half of the BA-buffer's 8 MB.
const HALF_BYTES: u64 = 2 * MIB;
/// A line of emulated persistent memory, flushed: an assumption, as NVDIMMs take.
const PM_LINE_NS: u64 = 100;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    cores: usize,
    program: Vec<Program>,
}

/// What a database does, without its log.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Program {
    label: String,
    sessions: u64,
    writes_percent: u64,
    read_ns: u64,
    write_ns: u64,
    log_bytes: usize,
}

impl Program {
    /// Takes over `computing_percent`, of what it computes, and `sessions`.
    fn change(&mut self, parameters: &BTreeMap<String, u64>) -> Result<()> {
        for (name, value) in parameters {
            match name.as_str() {
                "computing_percent" => {
                    self.read_ns = self.read_ns * value / 100;
                    self.write_ns = self.write_ns * value / 100;
                }
                "sessions" => self.sessions = *value,
                _ => bail!("a database has no parameter {name}; it has computing_percent and sessions"),
            }
        }
        Ok(())
    }
}

/// Where a log is, and how it commits.
struct Column {
    title: &'static str,
    profile: &'static str,
    mode: Mode,
    /// Commits go to persistent memory first, from which the log is written in the background.
    is_memory: bool,
}

const fn column(title: &'static str, profile: &'static str, mode: Mode) -> Column {
    Column { title, profile, mode, is_memory: false }
}

/// Figure 9's columns.
const COLUMNS: [Column; 4] = [
    column("DC-SSD", "dc-ssd", Mode::Sync),
    column("ULL-SSD", "ull-ssd", Mode::Sync),
    column("2B-SSD", "2b-ssd", Mode::Ba),
    column("ASYNC", "ull-ssd", Mode::Async),
];

/// Figure 10's, beside 2B-SSD and ASYNC.
const MEMORY: [Column; 2] = [
    Column { is_memory: true, ..column("PM + DC-SSD", "dc-ssd", Mode::Async) },
    Column { is_memory: true, ..column("PM + ULL-SSD", "ull-ssd", Mode::Async) },
];

/// What came out of a run.
#[derive(Clone, Copy)]
struct Outcome {
    /// Transactions a second.
    rate: f64,
    /// Mean time of a commit.
    commit_ns: f64,
}

/// The bars of figure 9, what the paper says of them in its text, and those of figure 10.
///
/// # Errors
/// The device or the log failed.
pub(super) fn groups(variation: &Variation, scale: f64, seed: u64) -> Result<Vec<Group>> {
    let mut text: Text = toml::from_str(TEXT).context("workloads/logs.toml")?;
    for program in &mut text.program {
        program.change(&variation.parameters)?;
    }
    let work_ns = ((WORK_NS as f64 * scale) as u64).max(1_000_000);
    let of = |program: &Program, column: &Column| run(text.cores, program, column, work_ns, seed);
    let beside = |program: &Program, label: String| -> Result<(Group, Vec<Outcome>)> {
        let outcomes: Vec<Outcome> =
            COLUMNS.iter().map(|column| of(program, column)).collect::<Result<_>>()?;
        let bars = COLUMNS.iter().zip(&outcomes).map(|(column, outcome)| {
            bar(column.title, outcome.rate / outcomes[0].rate)
                .with("transactions a second", outcome.rate, "1/s")
                .with("a commit", outcome.commit_ns / 1e3, "us")
        });
        Ok((Group { label, bars: bars.collect() }, outcomes))
    };
    let (mut groups, mut all) = (Vec::new(), Vec::new());
    for program in &text.program {
        let (group, outcomes) = beside(program, program.label.clone())?;
        groups.push(group);
        all.push(outcomes);
    }
    let range = |label: &str, of: &dyn Fn(&[Outcome]) -> f64| {
        let values: Vec<f64> = all.iter().map(|outcomes| of(outcomes)).collect();
        let bars = vec![
            bar("least", values.iter().copied().fold(f64::INFINITY, f64::min)),
            bar("most", values.iter().copied().fold(0.0, f64::max)),
        ];
        Group { label: label.to_owned(), bars }
    };
    groups.push(range("2B-SSD ÷ DC-SSD", &|of| of[2].rate / of[0].rate));
    groups.push(range("2B-SSD ÷ ULL-SSD", &|of| of[2].rate / of[1].rate));
    groups.push(range("2B-SSD ÷ ASYNC", &|of| of[2].rate / of[3].rate));
    groups.push(range("ULL-SSD ÷ DC-SSD", &|of| of[1].rate / of[0].rate));
    groups.push(range("commit of DC-SSD ÷ 2B-SSD", &|of| of[0].commit_ns / of[2].commit_ns));

    let base = all[0][2].rate;
    let of_memory =
        |column: &Column| -> Result<Bar> { Ok(bar(column.title, of(&text.program[0], column)?.rate / base)) };
    let mut bars = MEMORY.iter().map(of_memory).collect::<Result<Vec<_>>>()?;
    bars.push(bar("ASYNC", all[0][3].rate / base));
    let label = format!("{}, as a multiple of 2B-SSD", text.program[0].label);
    groups.push(Group { label, bars });
    Ok(groups)
}

/// Runs a database on a log.
fn run(cores: usize, program: &Program, column: &Column, work_ns: u64, seed: u64) -> Result<Outcome> {
    let host = HostProfile { cores, ..HostProfile::default() };
    let mut device = Profile::named(column.profile).map_err(|error| anyhow!("{error}"))?;
    if column.mode == Mode::Ba {
        device.firmware.kind = Firmware::BaBuffer;
    }
    Sim::new(seed)
        .host(host)
        .blocking_limit(None)
        .try_run(|| in_sim(&device, program, column, work_ns, seed))
        .map_err(|failure| anyhow!("{failure}"))?
        .with_context(|| format!("{} on {}", program.label, column.title))
}

fn in_sim(device: &Profile, program: &Program, column: &Column, work_ns: u64, seed: u64) -> Result<Outcome> {
    let ssd = Arc::new(Ssd::try_in_memory(device, 2 * LOG_BYTES, &OpenOptions::default())?);
    let lies = Place { at: Lpa(0), pages: LOG_BYTES / PAGE };
    let options =
        Options { mode: column.mode, window: 0, half_bytes: HALF_BYTES, entries: [EntryId(0), EntryId(1)] };
    create(&*ssd, &lies)?;
    let log = Recovery::begin(ssd, lies, options)?.open()?;
    let until_ns = time::now_ns() + work_ns;
    let (done, commits, committing_ns) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let appended = AtomicU64::new(0);
    let session = |number: u64| -> Result<()> {
        let mut chance = Generator::new(seed.wrapping_mul(1009).wrapping_add(number));
        let record = vec![number as u8; program.log_bytes];
        while time::now_ns() < until_ns {
            if chance.below(100) >= program.writes_percent {
                cpu::charge_ns(program.read_ns);
            } else {
                cpu::charge_ns(program.write_ns);
                let began_ns = time::now_ns();
                commit(&log, &record, column.is_memory)?;
                committing_ns.fetch_add(time::now_ns() - began_ns, Ordering::Relaxed);
                commits.fetch_add(1, Ordering::Relaxed);
                let bytes = 2 * record.len() as u64;
                if appended.fetch_add(bytes, Ordering::Relaxed) + bytes > LOG_BYTES / 2 {
                    appended.store(0, Ordering::Relaxed);
                    log.truncate()?;
                }
            }
            done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    let began_ns = time::now_ns();
    task::scope(|scope| {
        let sessions: Vec<_> = (0..program.sessions)
            .map(|number| {
                let session = &session;
                scope.spawn("session", move || session(number))
            })
            .collect();
        sessions.into_iter().try_for_each(|session| session.join())
    })?;
    let seconds = (time::now_ns() - began_ns) as f64 / 1e9;
    let commits = commits.into_inner().max(1) as f64;
    Ok(Outcome {
        rate: done.into_inner() as f64 / seconds,
        commit_ns: committing_ns.into_inner() as f64 / commits,
    })
}

/// A transaction's record, and its commit.
fn commit(log: &Log<Ssd>, record: &[u8], is_memory: bool) -> Result<()> {
    log.append(record)?;
    if is_memory {
        time::sleep_ns(PM_LINE_NS * (record.len() as u64).div_ceil(64));
    }
    Ok(log.commit()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the design promises of a database that waits for its log: bytes before blocks, a fast SSD before
    /// a slow one, and nothing before not waiting. The smaller the payload the more there is to gain.
    #[test]
    fn commits_by_bytes_come_near_to_those_that_wait_for_nothing() {
        let groups = groups(&Variation::default(), 0.2, 1).unwrap();
        let rates = |label: &str| {
            let group = groups.iter().find(|group| group.label == label).unwrap();
            group.bars.iter().map(|bar| bar.ours).collect::<Vec<_>>()
        };
        for label in ["RocksDB, 128 B", "RocksDB, 1 KB", "Redis, 128 B", "Redis, 1 KB"] {
            let rates = rates(label);
            assert!(rates.is_sorted(), "{label}: {rates:?}");
            assert!(rates[2] > 1.2 * rates[1] && rates[2] > 0.75 * rates[3], "{label}: {rates:?}");
        }
        assert!(rates("RocksDB, 128 B")[2] > rates("RocksDB, 1 KB")[2]);
    }
}
