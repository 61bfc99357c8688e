//! The `amphi` command: the only place that joins names to devices and file systems. One module per
//! subcommand.
#![forbid(unsafe_code)]

#[macro_use]
mod output;

mod bench;
mod completions;
mod control;
mod crash;
mod daemon;
mod device;
#[cfg(test)]
mod documented_fields;
mod doors;
mod experiments;
mod export;
mod filesystem;
mod fsck;
mod fstab;
mod fstrim;
mod info;
mod log;
mod metrics_server;
mod mkfs;
mod mount;
mod mountinfo;
mod pin;
mod power_cut;
mod privileges;
mod progress;
mod resize;
mod run;
mod runtime_dir;
mod shared;

mod ssd;
mod stats;
mod target;
mod trivial;
mod tune;
mod umount;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Small objects from pages of their size, and memory in huge pages where the system has them: a look-up in a
/// cache of millions of inodes does not wait for address translation.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// File systems for SSDs that speak bytes and blocks, on an emulated one.
#[derive(Parser)]
#[command(name = "amphi", version, disable_help_subcommand = true, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  amphi mkfs ssd.img --fs bytefs       an 8 GiB emulated SSD in a sparse file, with a file system on it
  amphi mount ssd.img /mnt             use it
  amphi stats /mnt --watch             what travels to the SSD and to its flash
  amphi power-cut /mnt                 lose power; `amphi mount` again recovers
  amphi umount /mnt
  amphi fsck ssd.img";

#[derive(Subcommand)]
enum Command {
    Mkfs(mkfs::Options),
    Mount(mount::Options),
    Umount(umount::Options),
    InstallHelper(fstab::Options),
    Run(run::Options),
    Export(export::Options),
    Fsck(fsck::Options),
    Tune(tune::Options),
    Resize(resize::Options),
    Pin(pin::Options),
    Unpin(pin::Options),
    Pins(pin::Listing),
    Fstrim(fstrim::Options),
    Info(info::Options),
    Stats(stats::Options),
    PowerCut(power_cut::Options),
    Crash(crash::Options),
    Bench(bench::Options),
    Ssd(ssd::Options),
    Completions(completions::Options),
}

fn main() -> ExitCode {
    if fstab::is_called() {
        let failed = fstab::mount();
        return failed.map_or_else(
            |error| {
                eprintln!("amphi: {error:#}");
                ExitCode::FAILURE
            },
            |()| ExitCode::SUCCESS,
        );
    }
    let command = Arguments::parse().command;
    let unprinted = match &command {
        // 1 says that errors were repaired.
        Command::Fsck(_) => fsck::COULD_NOT_RUN.into(),
        _ => ExitCode::FAILURE,
    };
    output::guarded(unprinted, || match run(command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("amphi: {error:#}");
            ExitCode::FAILURE
        }
    })
}

fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Mkfs(options) => mkfs::run(&options)?,
        Command::Mount(options) => mount::run(&options)?,
        Command::Umount(options) => umount::run(&options)?,
        Command::InstallHelper(options) => fstab::install(&options)?,
        Command::Run(options) => run::run(&options)?,
        Command::Export(options) => export::run(&options)?,
        Command::Fsck(options) => return Ok(fsck::run(&options)),
        Command::Tune(options) => tune::run(&options)?,
        Command::Resize(options) => resize::run(&options)?,
        Command::Pin(options) => pin::run(&options, true)?,
        Command::Unpin(options) => pin::run(&options, false)?,
        Command::Pins(options) => pin::list(&options)?,
        Command::Fstrim(options) => fstrim::run(&options)?,
        Command::Info(options) => info::run(&options)?,
        Command::Stats(options) => stats::run(&options)?,
        Command::Crash(options) => return crash::run(&options),
        Command::PowerCut(options) => power_cut::run(&options)?,
        Command::Bench(options) => bench::run(&options)?,
        Command::Ssd(options) => return ssd::run(&options),
        Command::Completions(options) => completions::run(&options),
    }
    Ok(ExitCode::SUCCESS)
}
