//! The suites of others that run on a mount: installs what is missing, then runs the end-to-end tests that
//! drive them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::built::Built;
use crate::packages;
use crate::step::{self, step};
use crate::workers;

/// Suites from crates.io and their versions, each in a directory of its own, so that another version is
/// installed anew.
const CRATES: [(&str, &str); 2] = [("pjdfstest", "0.2.2"), ("fsx", "0.3.2")];

/// Runs the suites with what `test` makes, a `cargo test` without a package. Where nothing can be mounted,
/// says why and succeeds.
///
/// # Errors
/// If something cannot be installed, or a suite fails.
pub fn run(root: &Path, built: &Built, prepare: impl Fn(&mut Command)) -> Result<()> {
    let reason = packages::why_no_fuse()
        .or_else(|| (!packages::is_root()).then(|| "they have to run as root (try sudo)".to_owned()));
    if let Some(reason) = reason {
        println!("skipped: external suites: {reason}");
        return Ok(());
    }
    packages::ensure(&packages::SUITES)?;
    let directories = workers::each(&CRATES, |(name, version)| install(root, name, version))?;
    let path = path_with(directories.into_iter().collect::<Result<_>>()?)?;
    let run = |room: &str, file: &str, which: &str| {
        let mut test = built.test(room, file)?;
        prepare(&mut test);
        // Two at a time: each waits for the kernel and for other processes half of the time.
        step::run(test.env("PATH", &path).args([which, "--nocapture", "--test-threads=2"]))
    };
    step("external suites on a mount", || run("amphi", "end_to_end", "external_suites::"))?;
    step("external suites on a mount of the model", || {
        run("front-fuse", "mount", "suites::")?;
        run("front-fuse", "mount_ring", "suites::")
    })
}

/// Installs a crate's program below `target` unless it is there; returns the directory that holds it.
fn install(root: &Path, name: &str, version: &str) -> Result<PathBuf> {
    let place = root.join("target/suites").join(format!("{name}-{version}"));
    let directory = place.join("bin");
    if !directory.join(name).is_file() {
        step(&format!("install {name} {version}"), || {
            let mut install = step::cargo(root);
            install.args(["install", "--quiet", "--locked", "--version", &format!("={version}"), "--root"]);
            install.arg(&place).arg(name);
            // Faster ones gain less than what it takes to make them.
            step::run(install.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1"))
        })?;
    }
    Ok(directory)
}

/// `PATH` with `directories` before what it holds.
fn path_with(mut directories: Vec<PathBuf>) -> Result<OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    directories.extend(std::env::split_paths(&path));
    std::env::join_paths(directories).context("the workspace's path cannot be part of PATH")
}
