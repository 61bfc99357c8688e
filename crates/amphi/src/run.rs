//! `amphi run`: runs a program so that its file calls under Amphi's mounts go to their daemons by shared
//! memory.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The library that stands between the program and libc.
const LIBRARY: &str = "libamphi_preload.so";
/// Where it is looked for besides the directory of this program, from there.
const PLACES: [&str; 3] = [".", "../lib/amphi", "../lib"];

/// Runs a program whose reads, writes and names under a mount do not go through FUSE.
///
/// The program is not changed, and works on any number of mounts. What the queue cannot do goes through FUSE
/// as before, so the program sees one file system either way. Programs that are linked statically, or that
/// have more privileges than their caller, run as without this. LD_PRELOAD alone does the same.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  amphi run -- sqlite3 /mnt/a.db
  amphi run --trace-calls -- make -C /mnt/project    says at the end which calls went which way")]
pub struct Options {
    /// Let each process say at its end how many of its calls went through the queue, and how many through the
    /// kernel.
    #[arg(long)]
    trace_calls: bool,
    /// Open each file through FUSE too, so that its descriptor is the kernel's from the beginning. Else the
    /// kernel knows what the program opens to write only by its number, until something needs more of it; a
    /// call that the library does not see fails on it with EBADF, as those of a program with liburing linked
    /// into it statically. Making a file takes several times as long with this.
    #[arg(long)]
    real_descriptors: bool,
    /// Programs to leave alone, by name: they run as without this, what they start by another name does not.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    leave_alone: Vec<String>,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<OsString>,
}

pub fn run(options: &Options) -> Result<()> {
    let library = library()?;
    let mut preload = library.into_os_string();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let (program, arguments) = options.program.split_first().context("a program is needed")?;
    let mut command = Command::new(program);
    command.args(arguments).env("LD_PRELOAD", preload).env("AMPHI_RUN", "1");
    if options.trace_calls {
        command.env("AMPHI_TRACE_CALLS", "1");
    }
    if options.real_descriptors {
        command.env("AMPHI_REAL_DESCRIPTORS", "1");
    }
    if !options.leave_alone.is_empty() {
        command.env("AMPHI_LEAVE_ALONE", options.leave_alone.join(","));
    }
    let cause = command.exec();
    Err(cause).with_context(|| format!("{} cannot be run", program.display()))
}

fn library() -> Result<PathBuf> {
    let own = std::env::current_exe().context("this program's own file cannot be found")?;
    let directory = own.parent().context("this program's own file cannot be found")?;
    let candidates = PLACES.map(|place| directory.join(place).join(LIBRARY));
    match candidates.iter().find_map(|candidate| candidate.canonicalize().ok()) {
        Some(found) => Ok(found),
        None => {
            bail!("{} is not beside this program; build it with: cargo build -p amphi-front-preload", LIBRARY)
        }
    }
}
