//! `amphi bench`: measurements that anybody can repeat.

mod applications;
mod kernel;
mod session;
mod validate;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use amphi_benchlab::applications as databases;
use amphi_benchlab::report::{self, Report};
use amphi_benchlab::software::{self, Progress, Settings};
use amphi_benchlab::workload::PRESETS;
use amphi_benchlab::{operation, remote, rest};
use anyhow::{Context, Result, bail};
use clap::Subcommand;
use signal_hook::consts::TERM_SIGNALS;
use signal_hook::iterator::Signals;

use crate::{experiments, trivial};

/// Runs measurements.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  amphi bench list
  amphi bench run software
  amphi bench run fig6 --scale 0.01 --json fig6.json
  amphi bench run varmail --fs bytefs --threads 12 --scale 0.01
  amphi bench run trace --trace ops.txt --fs ext4
  amphi bench run random-write --set io=64 --set every=8 --scale 0.001
  amphi bench run software --only create --only overwrite --threads 1 --rounds 15 --json results.json")]
pub struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Lists the measurements.
    List,
    /// Runs one.
    Run(Run),
    /// Serves the file system that our mount is compared with, until SIGTERM or Ctrl-C.
    #[command(hide = true)]
    ServeTrivial {
        /// Where to mount it.
        directory: PathBuf,
    },
    /// Carries out operations of `software` in a directory, as its standard input says.
    #[command(hide = true)]
    ServeDesk {
        /// A directory to be made.
        directory: PathBuf,
    },
    Kernel(kernel::Options),
    Applications(applications::Options),
    Validate(validate::Options),
    #[command(hide = true)]
    Guest(validate::Guest),
    /// Runs every experiment and writes their results, one JSON file for each.
    Figures(experiments::Figures),
    /// Draws the results in a directory as one page, DIR/index.html, without measuring.
    Page(experiments::Page),
    /// Compares a small set of virtual-time results with stored ones, exactly.
    Guard(experiments::Guard),
}

/// Runs a measurement.
#[derive(clap::Args)]
struct Run {
    /// Its name.
    name: String,
    /// Numbers of threads; for `software` 1 and 2 unless given. An experiment or workload takes one, for its
    /// largest group of threads.
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = threads)]
    threads: Vec<usize>,
    #[command(flatten)]
    virtual_time: experiments::Options,
    /// Rounds: in each, every file system gets one batch of the operation, in turn.
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Only operations whose names contain WORD; can be given several times.
    #[arg(long, value_name = "WORD")]
    only: Vec<String>,
    /// For `software`: only file systems whose names contain WORD, and ByteFS as a library; can be given
    /// several times.
    #[arg(long, value_name = "WORD")]
    peer: Vec<String>,
    /// On a virtual machine whose idle processors halt at once, have them poll first, as the kernel's default
    /// says; only root can. What was set before is set again.
    #[arg(long)]
    poll_idle: bool,
    /// Have the kernel offer rings (FUSE over io_uring) for the run, and measure our mount through them as
    /// well; only root can. What was set before is set again.
    #[arg(long)]
    offer_rings: bool,
    /// Write the results to FILE as JSON, described in docs/bench.md; `-` is standard output, without the
    /// table.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

const SOFTWARE: &str = "software";

pub fn run(options: &Options) -> Result<()> {
    match &options.what {
        What::List => {
            println!(
                "software   what operations cost in software: ByteFS and RomeFS as libraries, ByteFS through FUSE, by the queue and"
            );
            println!(
                "           in a range that processes share, on an SSD without delays, beside the kernel's ext4, XFS and Btrfs"
            );
            println!("           on a loop device and on zram, and tmpfs; p50, in one interleaved run");
            for operation in operation::ALL {
                println!("             {}", operation.name());
            }
            println!(
                "amphi bench kernel   the kernel's file systems beside ours on equal emulated SSDs; workloads:"
            );
            for preset in PRESETS {
                println!("             {}", preset.name);
            }
            println!("amphi bench applications   databases on ours and on the kernel's file systems:");
            for (name, description) in databases::list() {
                println!("             {name:<9} {description}");
            }
            println!(
                "amphi bench validate   whether the baselines write what the kernel's ext4 and F2FS write"
            );
            experiments::list()
        }
        What::ServeTrivial { directory } => serve_trivial(directory),
        What::ServeDesk { directory } => remote::serve(directory),
        What::Kernel(options) => kernel::run(options),
        What::Applications(options) => applications::run(options),
        What::Validate(options) => validate::run(options),
        What::Guest(options) => validate::guest(options),
        What::Figures(figures) => experiments::figures(figures),
        What::Page(page) => experiments::page(page),
        What::Guard(guard) => experiments::guard(guard),
        What::Run(run) if run.name == SOFTWARE => software_path(run),
        What::Run(run) => {
            let threads = match run.threads[..] {
                [] => None,
                [threads] => Some(threads),
                _ => bail!("one number of threads is needed for {}", run.name),
            };
            experiments::run(&run.name, threads, run.json.as_deref(), &run.virtual_time)
        }
    }
}

fn serve_trivial(directory: &Path) -> Result<()> {
    let mut signals = Signals::new(TERM_SIGNALS).context("signals cannot be caught")?;
    let session = trivial::mount(directory)?;
    println!("the trivial file system is mounted on {}; Ctrl-C unmounts", directory.display());
    signals.forever().next();
    session.unmount()?;
    Ok(session.wait()?)
}

fn software_path(run: &Run) -> Result<()> {
    if software::chosen(&run.only).next().is_none() {
        bail!("no operation is called {}; see amphi bench list", run.only.join(" or "));
    }
    session::be_alone();
    let ended = Arc::new(AtomicBool::new(false));
    session::end_on_signals(&ended)?;
    let settings = Settings {
        amphi: std::env::current_exe().context("this program's own file cannot be found")?,
        threads: if run.threads.is_empty() { vec![1, 2] } else { run.threads.clone() },
        rounds: run.rounds as usize,
        only: run.only.clone(),
        peers: run.peer.clone(),
        poll_idle: run.poll_idle,
        offer_rings: run.offer_rings,
    };
    let is_quiet = session::is_stdout(run.json.as_deref());
    let mut tell = |progress: Progress<'_>| match progress {
        _ if is_quiet => {}
        Progress::Begun(report) => introduce(report),
        // Whoever stopped reading has the JSON, or does not want to know.
        Progress::Done(line) => drop(writeln!(std::io::stdout(), "{}", line.text())),
        Progress::Rested(report) => {
            let (ways, rests) = (report::ways(&report.operations), rest::text(&report.rests));
            drop(write!(std::io::stdout(), "\nWays that programs have to ours:\n{ways}\nDaemons:\n{rests}"));
        }
    };
    let report = software::run(&settings, &|| !ended.load(Ordering::Relaxed), &mut tell)?;
    if let Some(file) = &run.json {
        session::write(file, &(serde_json::to_string(&report)? + "\n"))?;
    }
    if report.interrupted {
        bail!("interrupted; mounts and devices are taken away");
    }
    Ok(())
}

fn introduce(report: &Report) {
    for peer in &report.peers {
        println!("{:<11} {}", peer.name, peer.description);
    }
    for peer in &report.unavailable {
        println!("{:<11} not available: {}", peer.name, peer.reason);
    }
    if report.idle_polling_ns == Some(0) {
        println!(
            "\nIdle processors of this virtual machine halt at once: what a request to another process takes depends on where the\nscheduler puts the two. --poll-idle has them poll first, as the kernel's default says."
        );
    }
    println!(
        "\nEach p50 is over {} interleaved rounds; (…) is the spread of the rounds' ratios.\n{}",
        report.rounds,
        report.head()
    );
}

fn threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(threads) if (1..=4096).contains(&threads) => Ok(threads),
        _ => Err("a number of threads from 1 to 4096 is needed".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use amphi_benchlab::operation::Operation;
    use amphi_benchlab::peer::Peer;
    use amphi_benchlab::report::{Line, SCHEMA, Unavailable};
    use amphi_benchlab::rest::Rest;
    use amphi_benchlab::samples::Samples;

    use super::*;
    use crate::documented_fields;

    #[test]
    fn every_field_of_the_json_is_documented_and_the_other_way_round() {
        let peer = |name: &str, ours| Peer {
            name: name.to_owned(),
            description: String::new(),
            ours,
            durable: true,
            trivial: name == "trivial",
        };
        let peers = vec![
            peer("library", true),
            peer("romefs", true),
            peer("fuse", true),
            peer("fuse-ring", true),
            peer("trivial", false),
            peer("ext4-zram", false),
        ];
        let samples =
            [1, 2, 7, 5, 6, 70].map(|ns| Samples { rounds: vec![vec![ns]], rates: vec![1.0], failure: None });
        let report = Report {
            schema: SCHEMA,
            rounds: 1,
            interrupted: false,
            idle_polling_ns: Some(0),
            operations: vec![Line::of(Operation::Create, 1, &peers, &samples)],
            unavailable: vec![Unavailable { name: String::new(), reason: String::new() }],
            rests: vec![Rest { peer: String::new(), idle_ns_per_second: 0.0, ns_per_call: 0.0 }],
            peers,
        };
        let printed = serde_json::to_value(report).expect("JSON");
        documented_fields::compare(&printed, include_str!("../../../docs/bench.md"));
    }
}
