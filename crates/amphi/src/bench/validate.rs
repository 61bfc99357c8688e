//! `amphi bench validate`: whether a baseline writes what the kernel's file system of its kind writes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use amphi_benchlab::validation::{self, Asked, Kind, Row, Settings};
use amphi_benchlab::workload::{self, Personality, Run};
use amphi_benchlab::ycsb::{self, Ycsb};
use anyhow::{Result, bail};

use super::session;

/// Compares a baseline with the kernel's file system of its kind, fs-ext4like with ext4 or fs-f2fslike with
/// F2FS: the same steps on both, over equal SSDs, and for each the blocks written, the flushes and what the
/// SSD programmed into its flash.
///
/// Every request of both is written down; where they differ by more than 15 %, the blocks are shown by
/// structure. Needs root, and e2fsprogs or f2fs-tools. With --machine the kernel's file system is in a
/// virtual machine with a kernel of Debian's: that needs qemu-system-x86, busybox-static and cpio as well,
/// and takes KVM where it runs the kernel, else QEMU's own emulation.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  amphi bench validate
  amphi bench validate --journal-data --workload varmail --json validation.json
  amphi bench validate --workload oltp --workload ycsb-a --rounds 5
  amphi bench validate --rounds 1 --trace kernel.trace
  apt-get download linux-image-amd64-VERSION && dpkg-deb -x linux-image-*.deb kernel
  amphi bench validate --fs f2fs --machine kernel")]
pub struct Options {
    /// The kernel's file system.
    #[arg(long, default_value = "ext4", value_parser = ["ext4", "f2fs"])]
    fs: String,
    /// Have it in a virtual machine, with the kernel of the package that is unpacked in DIR.
    #[arg(long, value_name = "DIR", conflicts_with = "trace")]
    machine: Option<PathBuf>,
    /// File data go through the journal, on both; of ext4.
    #[arg(long)]
    journal_data: bool,
    #[command(flatten)]
    steps: Steps,
    /// How often all of it is done; means are compared.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: u16,
    /// Append what the kernel's ext4 and jbd2 do in each step of the first round to FILE, by their
    /// tracepoints; needs tracefs.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Write the results to FILE as JSON, described in docs/validation.md; `-` is standard output, without
    /// the table.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What is done besides single operations.
#[derive(clap::Args)]
struct Steps {
    /// A workload to run besides the single operations, see amphi bench list, or one of ycsb-a to ycsb-f; can
    /// be given several times.
    #[arg(long, value_name = "NAME", default_values_t = DEFAULT.map(str::to_owned))]
    workload: Vec<String>,
    /// Share of the workloads' published number of files, and of the store's records.
    #[arg(long, value_name = "S", default_value_t = 0.001, value_parser = super::kernel::scale)]
    scale: f64,
    /// Operations of each workload.
    #[arg(long, value_name = "N", default_value_t = 4000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    operations: u64,
    /// Decides what the workloads leave to chance.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// Does the steps on a mounted file system, as it is told over a port: what `amphi bench validate --machine`
/// runs in the machine.
#[derive(clap::Args)]
pub struct Guest {
    /// The port.
    port: PathBuf,
    /// The file system.
    directory: PathBuf,
    #[command(flatten)]
    steps: Steps,
}

pub fn guest(options: &Guest) -> Result<()> {
    validation::serve(&options.port, &options.directory, &options.steps.asked()?)
}

/// What is run unless something is asked for.
const DEFAULT: [&str; 1] = ["varmail"];

fn is_ycsb(name: &str) -> bool {
    ycsb::PRESETS.iter().any(|preset| preset.0 == name)
}

impl Steps {
    fn asked(&self) -> Result<Asked> {
        let make = |name: &String| -> Result<Personality> {
            let mut personality = workload::preset(name, &[])?.scaled(self.scale);
            personality.run = Run { operations: Some(self.operations), ..Run::default() };
            Ok(personality)
        };
        let (of_store, of_files): (Vec<_>, Vec<_>) = self.workload.iter().partition(|name| is_ycsb(name));
        let workloads = of_files.into_iter().map(make).collect::<Result<_>>()?;
        let of_store = of_store.into_iter().map(|name| -> Result<Ycsb> {
            let mut workload = ycsb::preset(name)?.scaled(self.scale);
            (workload.store.operations, workload.store.warm_up_operations) = (self.operations, 0);
            Ok(workload)
        });
        Ok(Asked { workloads, ycsb: of_store.collect::<Result<_>>()?, seed: self.seed })
    }

    /// What is typed to ask for the same.
    fn words(&self) -> Vec<String> {
        let mut words = vec![
            format!("--scale={}", self.scale),
            format!("--operations={}", self.operations),
            format!("--seed={}", self.seed),
        ];
        words.extend(self.workload.iter().map(|name| format!("--workload={name}")));
        words
    }
}

pub fn run(options: &Options) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("only root can make disks and mount them; run this as root");
    }
    let kind = match options.fs.as_str() {
        "f2fs" if options.journal_data => bail!("F2FS has no journal; --journal-data is of ext4"),
        "f2fs" => Kind::F2fs,
        _ => Kind::Ext4 { journal_data: options.journal_data },
    };
    if kind == Kind::F2fs && options.trace.is_some() {
        bail!("--trace is of ext4 and jbd2");
    }
    let asked = options.steps.asked()?;
    session::be_alone();
    let ended = Arc::new(AtomicBool::new(false));
    session::end_on_signals(&ended)?;
    let settings = Settings {
        amphi: std::env::current_exe()?,
        kind,
        machine: options.machine.as_deref().map(Path::to_owned),
        arguments: options.steps.words(),
        asked,
        rounds: usize::from(options.rounds),
        trace: options.trace.clone(),
    };
    let report = validation::run(&settings, &|| !ended.load(Ordering::Relaxed))?;
    if !session::is_stdout(options.json.as_deref()) {
        if let Some(machine) = &report.machine {
            println!("{} of {machine}", report.file_system);
        }
        println!("{}", Row::head());
        for row in &report.rows {
            println!("{}", row.text());
        }
        let (agree, all) = report.agreeing();
        let near = |is_near: fn(&Row) -> bool| report.rows.iter().filter(|row| is_near(row)).count();
        println!(
            "{agree} of {all} steps within {:.0} %: blocks of {}, flushes of {}, flash of {}",
            validation::TOLERANCE * 100.0,
            near(|row| row.blocks_agree),
            near(|row| row.flushes_agree),
            near(|row| row.flash_agrees)
        );
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
            kernel_flash_bytes: 1.0,
            baseline_flash_bytes: 1.0,
            blocks_agree: true,
            flushes_agree: true,
            flash_agrees: true,
            structures: vec![Share { structure: String::new(), kernel: 1, baseline: 1 }],
        };
        let report = Report {
            schema: SCHEMA,
            file_system: "ext4",
            machine: Some(String::new()),
            journal_data: false,
            rounds: 1,
            interrupted: false,
            rows: vec![row],
        };
        let printed = serde_json::to_value(report).expect("JSON");
        documented_fields::compare(&printed, include_str!("../../../../docs/validation.md"));
    }
}
