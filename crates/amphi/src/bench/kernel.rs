//! `amphi bench kernel`: the kernel's file systems beside ours on equal emulated SSDs.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use amphi_benchlab::html;
use amphi_benchlab::kernel_ssd::{self, CONTESTANTS, Cell, OVERHEAD_MAX, Progress, Settings};
use amphi_benchlab::workload::{self, Personality, Run};
use anyhow::{Result, bail};

use super::session;
use amphi_volume::size;

/// Runs workloads on the kernel's ext4, XFS and Btrfs over an exported SSD, and on ByteFS through FUSE and as
/// a library over an equal one.
///
/// It takes place in dilated real time: the device's times are multiplied until what the export costs is less
/// than a twentieth of a request, and all results divided by as much. Mounts, loop devices and daemons are
/// taken away at the end, also if the run is interrupted or killed. Needs root.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  amphi bench kernel
  amphi bench kernel --workload varmail --only ext4 --only fuse --operations 2000
  amphi bench kernel --workload varmail --scale 0.01 --dilate 400 --json kernel.json --html kernel.html")]
pub struct Options {
    /// A workload, see amphi bench list; can be given several times.
    #[arg(long, value_name = "NAME", default_values_t = DEFAULT.map(str::to_owned))]
    workload: Vec<String>,
    /// Only file systems whose names contain WORD (bytefs-library, bytefs-fuse, ext4, ext4-journal, xfs,
    /// btrfs); can be given several times.
    #[arg(long, value_name = "WORD")]
    only: Vec<String>,
    /// What the device's times are multiplied by; `auto` finds out.
    #[arg(long, value_name = "N", default_value = "auto", value_parser = dilation)]
    dilate: Dilation,
    /// Share of the workloads' published number of files.
    #[arg(long, value_name = "S", default_value_t = 0.001, value_parser = scale)]
    scale: f64,
    /// Operations of each run, over all threads.
    #[arg(long, value_name = "N", default_value_t = 12_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    operations: u64,
    /// Threads of a workload's largest group, if not as many as were published.
    #[arg(long, value_name = "N", value_parser = super::threads)]
    threads: Option<usize>,
    /// Decides what the workloads leave to chance.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// The SSDs' parameters: a built-in profile's name, or a TOML file.
    #[arg(long, default_value = "mssd-pcie3")]
    profile: String,
    /// Size of each SSD. It is in memory, which is used as it is written.
    #[arg(long, value_parser = size::parse, default_value = "2G")]
    size: u64,
    /// Write the results to FILE as JSON, described in docs/kernel.md; `-` is standard output, without the
    /// table.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the throughput as a chart to FILE, one page that opens offline.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// How the chart's values were measured.
const MEASURED: &str = "Measured in dilated real time on the machine of whoever ran the command below; nothing was published to stand beside it.";

/// What is run unless something is asked for.
const DEFAULT: [&str; 1] = ["varmail"];

/// How long device times are made.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Dilation {
    Auto,
    By(f64),
}

fn dilation(text: &str) -> Result<Dilation, String> {
    match (text, text.parse()) {
        ("auto", _) => Ok(Dilation::Auto),
        (_, Ok(factor)) if (1.0..=100_000.0).contains(&factor) => Ok(Dilation::By(factor)),
        _ => Err("write auto, or a number from 1 to 100000".to_owned()),
    }
}

pub fn scale(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(scale) if scale > 0.0 && scale <= 1.0 => Ok(scale),
        _ => Err("a number above 0, and 1 at the most, is needed".to_owned()),
    }
}

/// The workloads asked for, made small and as long as asked.
fn personalities(options: &Options) -> Result<Vec<Personality>> {
    let make = |name: &String| -> Result<Personality> {
        let mut personality = workload::preset(name, &[])?.scaled(options.scale);
        if let Some(threads) = options.threads {
            personality = personality.with_threads(threads);
        }
        // A number of operations is the same work for each file system, however fast it is; the rest of the
        // machine's time matters to none.
        personality.run = Run { operations: Some(options.operations), ..Run::default() };
        Ok(personality)
    };
    options.workload.iter().map(make).collect()
}

pub fn run(options: &Options) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("only root can make disks and mount them; run this as root");
    }
    let workloads = personalities(options)?;
    session::be_alone();
    let ended = Arc::new(AtomicBool::new(false));
    session::end_on_signals(&ended)?;
    let settings = Settings {
        amphi: std::env::current_exe()?,
        workloads,
        only: options.only.clone(),
        profile: options.profile.clone(),
        ssd_bytes: options.size,
        dilation: match options.dilate {
            Dilation::Auto => None,
            Dilation::By(factor) => Some(factor),
        },
        seed: options.seed,
        scale: options.scale,
    };
    let is_quiet = session::is_stdout(options.json.as_deref());
    let mut structures = Vec::new();
    let mut tell = |progress: Progress<'_>| match progress {
        _ if is_quiet => {}
        Progress::Calibrated(calibration) => {
            println!(
                "device times x {:.0}: a 4 KiB write with a flush takes {:.0} us through the export without a device's delays, {:.0} us with them; \
                 {:.1} % of that is not the device's",
                calibration.dilation,
                calibration.export_ns as f64 / 1e3,
                calibration.request_ns as f64 / 1e3,
                calibration.overhead * 100.0
            );
            if calibration.overhead >= OVERHEAD_MAX {
                println!(
                    "that is more than {:.0} %: believe no times of this run; something else uses the processors, or --dilate is too low",
                    OVERHEAD_MAX * 100.0
                );
            }
            for contestant in CONTESTANTS {
                println!("{:<15} {}", contestant.name, contestant.description);
            }
        }
        Progress::Workload(name) => {
            for line in structures.drain(..) {
                println!("{line}");
            }
            println!("\n{name}\n{}", Cell::head());
        }
        // Its line takes the place of this one.
        Progress::Next(name) if std::io::stderr().is_terminal() => eprint!("{name} ...\r"),
        Progress::Next(_) => {}
        Progress::Done(cell) => {
            println!("{}", cell.text());
            structures.extend(cell.structures_text());
        }
    };
    let report = kernel_ssd::run(&settings, &|| !ended.load(Ordering::Relaxed), &mut tell)?;
    for line in structures {
        println!("{line}");
    }
    if let Some(file) = &options.json {
        session::write(file, &(serde_json::to_string(&report)? + "\n"))?;
    }
    if let Some(file) = &options.html {
        let command: Vec<_> = std::env::args().collect();
        let figure = report.figure(&command.join(" "));
        session::write(file, &html::page_of(&figure.title.clone(), MEASURED, &[figure]))?;
    }
    if report.interrupted {
        bail!("interrupted; mounts and devices are taken away");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use amphi_benchlab::kernel_ssd::{Calibration, Latency, Report, SCHEMA, StructureBytes, Workload};

    use super::*;
    use crate::documented_fields;

    #[test]
    fn every_field_of_the_json_is_documented_and_the_other_way_round() {
        let cell = Cell {
            latencies: vec![Latency { operation: "fsync", count: 1, mean_ns: 1.0, p50_ns: 1, p99_ns: 1 }],
            structures: vec![StructureBytes { structure: String::new(), bytes: 1 }],
            ..Cell::default()
        };
        let calibration =
            Calibration { dilation: 1.0, export_ns: 1, request_ns: 1, device_ns: 1, overhead: 0.0 };
        let workload =
            Workload { name: String::new(), description: String::new(), threads: 1, cells: vec![cell] };
        let report = Report {
            schema: SCHEMA,
            profile: String::new(),
            seed: 1,
            scale: 1.0,
            interrupted: false,
            calibration,
            workloads: vec![workload],
        };
        let printed = serde_json::to_value(report).expect("JSON");
        documented_fields::compare(&printed, include_str!("../../../../docs/kernel.md"));
    }

    #[test]
    fn dilation_is_a_number_or_found_out() {
        assert_eq!((dilation("auto"), dilation("250")), (Ok(Dilation::Auto), Ok(Dilation::By(250.0))));
        for bad in ["0", "-3", "0.5", "NaN", "inf", "x"] {
            assert!(dilation(bad).is_err(), "{bad}");
        }
    }
}
