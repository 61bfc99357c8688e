//! `amphi bench applications`: real databases on ours and on the kernel's file systems, beside each other.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use amphi_benchlab::applications::{self, Progress, Settings};
use anyhow::{Result, bail};

use super::session;

/// Runs RocksDB, LevelDB, SQLite, Redis and PostgreSQL, each write durable, and tar, git, rm and ls on source
/// trees, on ByteFS through FUSE and on the kernel's ext4, XFS and Btrfs.
///
/// Twice: over emulated SSDs with the device's own times, which the kernel's file systems reach through
/// `amphi export`, and over memory (zram; ours on an SSD without delays). Only what stands on the same is
/// compared. Needs root, and the applications: Debian's rocksdb-tools, libleveldb-dev, gcc, sqlite3, redis,
/// postgresql.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  amphi bench applications
  amphi bench applications --preload
  amphi bench applications --logs --dilate 20
  amphi bench applications --only sqlite --only redis --rounds 7 --json applications.json")]
pub struct Options {
    /// Only applications whose names contain WORD (rocksdb, leveldb, sqlite, redis, postgres, unpack, git,
    /// remove, list); can be given several times.
    #[arg(long, value_name = "WORD")]
    only: Vec<String>,
    /// Rounds: in each, every file system gets its turn.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Multiplies the number of writes of a round.
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = scale)]
    scale: f64,
    /// Also run them as `amphi run` does, by the queue and in a shared range; with their logs in a BA-buffer;
    /// and on tmpfs for comparison.
    #[arg(long)]
    preload: bool,
    /// On the SSDs of 2B-SSD's figure 9 in the place of all others: logs on the data-centre SSD, the
    /// ultra-low-latency SSD and in 2B-SSD's BA-buffer, and commits that wait for nothing.
    #[arg(long, conflicts_with = "preload")]
    logs: bool,
    /// Multiplies the times of these SSDs, so that the machine's own software fades; rates are those of the
    /// device's own seconds.
    #[arg(long, value_name = "N", default_value_t = 1.0, requires = "logs", value_parser = dilation)]
    dilate: f64,
    /// Only file systems whose names contain WORD; can be given several times.
    #[arg(long, value_name = "WORD")]
    place: Vec<String>,
    /// Write the results to FILE as JSON, described in docs/applications.md; `-` is standard output, without
    /// the table.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn scale(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(scale) if (0.001..=1000.0).contains(&scale) => Ok(scale),
        _ => Err("a number from 0.001 to 1000 is needed".to_owned()),
    }
}

fn dilation(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(dilation) if (1.0..=1000.0).contains(&dilation) => Ok(dilation),
        _ => Err("a number from 1 to 1000 is needed".to_owned()),
    }
}

pub fn run(options: &Options) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("only root can make disks and mount them; run this as root");
    }
    session::be_alone();
    let ended = Arc::new(AtomicBool::new(false));
    session::end_on_signals(&ended)?;
    let settings = Settings {
        amphi: std::env::current_exe()?,
        rounds: options.rounds as usize,
        only: options.only.clone(),
        scale: options.scale,
        preload: options.preload,
        logs: options.logs.then_some(options.dilate),
        places: options.place.clone(),
    };
    let is_quiet = session::is_stdout(options.json.as_deref());
    let mut tell = |progress: Progress<'_>| match progress {
        _ if is_quiet => {}
        Progress::Place(place) => match &place.failure {
            Some(failure) => println!("{:<17} not available: {failure}", place.name),
            None => println!("{:<17} {}", place.name, place.description),
        },
        // The next line takes the place of this one.
        Progress::Next(application, place) if std::io::stderr().is_terminal() => {
            eprint!("{:<40}\r", format!("{application} on {place} ..."));
        }
        Progress::Next(..) => {}
        Progress::Done(application) => print!("{}", application.text()),
    };
    let report = applications::run(&settings, &|| !ended.load(Ordering::Relaxed), &mut tell)?;
    if let Some(file) = &options.json {
        session::write(file, &(serde_json::to_string(&report)? + "\n"))?;
    }
    if report.interrupted {
        bail!("interrupted; mounts and devices are taken away");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use amphi_benchlab::applications::{Application, Outcome, PlaceReport, Ratio, Report, SCHEMA};

    use crate::documented_fields;

    #[test]
    fn every_field_of_the_json_is_documented_and_the_other_way_round() {
        let outcome = Outcome { place: String::new(), per_second: None, min: None, max: None, failure: None };
        let application = Application {
            name: String::new(),
            description: String::new(),
            operations: 1,
            results: vec![outcome],
            ratios: vec![Ratio { ours: String::new(), best: String::new(), ratio: 1.0 }],
        };
        let place = PlaceReport { name: String::new(), description: String::new(), failure: None };
        let report = Report {
            schema: SCHEMA,
            rounds: 1,
            dilation: 1.0,
            interrupted: false,
            places: vec![place],
            applications: vec![application],
        };
        let printed = serde_json::to_value(report).expect("JSON");
        documented_fields::compare(&printed, include_str!("../../../../docs/applications.md"));
    }
}
