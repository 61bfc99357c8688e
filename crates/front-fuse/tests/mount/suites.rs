//! The external suites, where they are installed: `cargo xtask test --only suites` does that and runs them
//! here too.

use std::fs;
use std::io::{Write, stderr};
use std::process::{Command, Output};

use crate::mounted::{Mounted, is_root};

/// Tells what was not run. What passing tests print is shown to nobody, but for what goes past the macros.
fn skipped(suite: &str, reason: &str) {
    let line = format!("SKIPPED: {suite}, {:?}: {reason}\n", crate::TRANSPORT);
    stderr().write_all(line.as_bytes()).unwrap();
}

/// Runs `command` if its program is installed, and tells if not.
fn output(suite: &str, command: &mut Command) -> Option<Output> {
    let output = command.output();
    if let Err(cause) = &output {
        skipped(suite, &format!("{cause}; `cargo xtask test --only suites` installs and runs it"));
    }
    output.ok()
}

#[test]
fn pjdfstest() {
    if !is_root() {
        return skipped("pjdfstest", "it has to be root");
    }
    let Some(mounted) = Mounted::new() else { return skipped("pjdfstest", "nothing can be mounted") };
    let outside = tempfile::tempdir().unwrap();
    let configuration = outside.path().join("pjdfstest.toml");
    let text = "[features]\nposix_fallocate = {}\nrename_ctime = {}\nutimensat = {}\nutime_now = {}\n\
        [settings]\nnaptime = 0.002\nallow_remount = false\n\
        [dummy_auth]\nentries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"]]\n";
    fs::write(&configuration, text).unwrap();
    let mut command = Command::new("pjdfstest");
    command.arg("-c").arg(&configuration).arg("-s").arg(outside.path()).arg("-p").arg(mounted.root());
    let Some(output) = output("pjdfstest", &mut command) else { return };
    let report = String::from_utf8_lossy(&output.stdout);
    let summary = report.lines().rfind(|line| line.starts_with("Summary")).unwrap_or("no summary");
    println!("{summary}");
    let failed: Vec<&str> = report.lines().filter(|line| line.ends_with("FAILED")).collect();
    assert!(summary.contains(": 0 failed"), "{summary}\n{}", failed.join("\n"));
}

#[test]
fn fsx() {
    let Some(mounted) = Mounted::new() else { return skipped("fsx", "nothing can be mounted") };
    let outside = tempfile::tempdir().unwrap();
    let weights = |file: &str, names: &[&str], align: u32| {
        let path = outside.path().join(file);
        let mut text =
            format!("flen = 262144\n[opsize]\nmax = 65536\nmin = {align}\nalign = {align}\n[weights]\n");
        for name in names {
            text += &format!("{name} = 5\n");
        }
        fs::write(&path, text).unwrap();
        path
    };
    let buffered =
        ["read", "write", "truncate", "fsync", "fdatasync", "close_open", "invalidate", "sendfile"];
    let mapped = ["mapread", "mapwrite", "punch_hole", "posix_fallocate", "copy_file_range", "posix_fadvise"];
    let all = [&buffered[..], &mapped[..]].concat();
    // With an alignment fsx asks to reserve empty ranges, which no file system does.
    let aligned: Vec<&str> = all.iter().copied().filter(|&name| name != "posix_fallocate").collect();
    let configurations =
        [weights("buffered", &buffered, 1), weights("all", &all, 1), weights("aligned", &aligned, 4096)];
    for (seed, configuration) in configurations.iter().enumerate() {
        let mut command = Command::new("fsx");
        command.args(["-q", "-N", "4000", "-S", &(seed + 1).to_string(), "-P"]).arg(outside.path());
        command.arg("-f").arg(configuration).arg(mounted.path("fsx"));
        let Some(output) = output("fsx", &mut command) else { return };
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "seed {}, {}: {said}", seed + 1, configuration.display());
    }
}
