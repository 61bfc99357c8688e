//! `cargo xtask demo`: real programs on a file system mounted from an emulated SSD, a killed daemon, a power
//! loss, and what it cost.

mod crash;
mod database;
mod in_process;
mod interrupt;
mod programs;
mod screen;
mod stage;
mod table;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Result;

use crate::packages;
use crate::step::{self, step};
use stage::Stage;
use table::Table;

/// What `cargo xtask demo` takes.
#[derive(clap::Args)]
pub struct Options {
    /// The emulated device: a built-in profile, or a file.
    #[arg(long, default_value = "mssd-pcie3")]
    profile: String,
    /// Single-row SQLite transactions for each journal mode.
    #[arg(long, default_value_t = 10_000)]
    transactions: u64,
    /// Decides when the daemon is killed and what the power loss destroys.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Do without a mount: SQLite in one process on the library, as where /dev/fuse is missing.
    #[arg(long)]
    no_mount: bool,
}

/// The programs that the demo drives.
pub struct Programs {
    /// The `amphi` command.
    amphi: PathBuf,
    /// SQLite with its acknowledgement log.
    sqlite: PathBuf,
}

/// Runs the demo.
///
/// # Errors
/// The first thing that does not work; mounts and temporary files are gone by then.
pub fn run(root: &Path, options: &Options) -> Result<()> {
    packages::ensure(&packages::ALL)?;
    interrupt::install()?;
    let programs = step("build in release", || build(root))?;
    if let Some(reason) = packages::why_no_fuse() {
        println!("Nothing can be mounted here: {reason}.");
        return in_process::run(&programs, options);
    }
    if options.no_mount {
        return in_process::run(&programs, options);
    }
    let start = Instant::now();
    let mut table = Table::default();
    let stage = step("create an emulated SSD with ByteFS on it, and mount it", || {
        Stage::new(&programs.amphi, &options.profile)
    })?;
    database::run(&stage, &programs, options.transactions, &mut table)?;
    programs::version_control(&stage, root, &mut table)?;
    programs::source_tree(&stage, root, &mut table)?;
    crash::run(&stage, &programs, options.seed)?;
    step("unmount", || stage.close())?;
    println!();
    table.print(&options.profile);
    println!(
        "\nDemo finished in {:.0} s after the build; its image and mounts are gone again.",
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

fn build(root: &Path) -> Result<Programs> {
    let mut build = step::cargo(root);
    build.args(["build", "--quiet", "--release", "--package", "amphi", "--package", "sqlite-driver"]);
    step::run(&mut build)?;
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |target| root.join(target));
    let release = target.join("release");
    Ok(Programs { amphi: release.join("amphi"), sqlite: release.join("sqlite-driver") })
}
