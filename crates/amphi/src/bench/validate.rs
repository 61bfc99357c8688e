//! `amphi bench validate`: whether the baseline `fs-ext4like` writes what the kernel's ext4 writes.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use amphi_benchlab::validation::{self, Row, Settings};
use amphi_benchlab::workload::{self, Personality, Run};
use amphi_benchlab::ycsb::{self, Ycsb};
use anyhow::{Result, bail};

use super::session;

/// Compares the baseline fs-ext4like with the kernel's ext4: the same steps on both, over equal SSDs, and for
/// each the blocks written and the flushes.
///
/// Every request of both is written down; where they differ by more than 15 %, the blocks are shown by
/// structure. Needs root and e2fsprogs.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  amphi bench validate
  amphi bench validate --journal-data --workload varmail --json validation.json
  amphi bench validate --workload oltp --workload ycsb-a --rounds 5
  amphi bench validate --rounds 1 --trace kernel.trace")]
pub struct Options {
    /// File data go through the journal, on both.
    #[arg(long)]
    journal_data: bool,
    /// A workload to run besides the single operations, see amphi bench list, or one of ycsb-a to ycsb-f; can
    /// be given several times.
    #[arg(long, value_name = "NAME", default_values_t = DEFAULT.map(str::to_owned))]
    workload: Vec<String>,
    /// How often all of it is done; means are compared.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: u16,
    /// Append what the kernel's ext4 and jbd2 do in each step of the first round to FILE, by their
    /// tracepoints; needs tracefs.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Share of the workloads' published number of files, and of the store's records.
    #[arg(long, value_name = "S", default_value_t = 0.001, value_parser = super::kernel::scale)]
    scale: f64,
    /// Operations of each workload.
    #[arg(long, value_name = "N", default_value_t = 4000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    operations: u64,
    /// Decides what the workloads leave to chance.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write the results to FILE as JSON, described in docs/validation.md; `-` is standard output, without
    /// the table.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What is run unless something is asked for.
const DEFAULT: [&str; 1] = ["varmail"];

fn is_ycsb(name: &str) -> bool {
    ycsb::PRESETS.iter().any(|preset| preset.0 == name)
}

pub fn run(options: &Options) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("only root can make disks and mount them; run this as root");
    }
    let make = |name: &String| -> Result<Personality> {
        let mut personality = workload::preset(name, &[])?.scaled(options.scale);
        personality.run = Run { operations: Some(options.operations), ..Run::default() };
        Ok(personality)
    };
    let (of_store, of_files): (Vec<_>, Vec<_>) = options.workload.iter().partition(|name| is_ycsb(name));
    let workloads = of_files.into_iter().map(make).collect::<Result<Vec<_>>>()?;
    let of_store = of_store.into_iter().map(|name| -> Result<Ycsb> {
        let mut workload = ycsb::preset(name)?.scaled(options.scale);
        (workload.store.operations, workload.store.warm_up_operations) = (options.operations, 0);
        Ok(workload)
    });
    session::be_alone();
    let ended = Arc::new(AtomicBool::new(false));
    session::end_on_signals(&ended)?;
    let settings = Settings {
        amphi: std::env::current_exe()?,
        workloads,
        ycsb: of_store.collect::<Result<Vec<_>>>()?,
        rounds: usize::from(options.rounds),
        trace: options.trace.clone(),
        journal_data: options.journal_data,
        seed: options.seed,
    };
    let report = validation::run(&settings, &|| !ended.load(Ordering::Relaxed))?;
    if !session::is_stdout(options.json.as_deref()) {
        println!("{}", Row::head());
        for row in &report.rows {
            println!("{}", row.text());
        }
        let (agree, all) = report.agreeing();
        println!("{agree} of {all} steps within {:.0} %", validation::TOLERANCE * 100.0);
    }
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
    use amphi_benchlab::validation::{Report, Row, SCHEMA, Share};

    use crate::documented_fields;

    #[test]
    fn every_field_of_the_json_is_documented_and_the_other_way_round() {
        let row = Row {
            step: String::new(),
            operations: 1,
            kernel_blocks: 1.0,
            baseline_blocks: 1.0,
            kernel_flushes: 1.0,
            baseline_flushes: 1.0,
            kernel_flushes_least: 1,
            kernel_flushes_most: 1,
            kernel_writes: 1.0,
            baseline_writes: 1.0,
            blocks_agree: true,
            flushes_agree: true,
            structures: vec![Share { structure: String::new(), kernel: 1, baseline: 1 }],
        };
        let report =
            Report { schema: SCHEMA, journal_data: false, rounds: 1, interrupted: false, rows: vec![row] };
        let printed = serde_json::to_value(report).expect("JSON");
        documented_fields::compare(&printed, include_str!("../../../../docs/validation.md"));
    }
}
