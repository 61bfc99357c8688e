//! The external suites, where they are installed: `cargo install pjdfstest fsx`.

use std::fs;
use std::process::{Command, Output};

use crate::mounted::{Mounted, is_root};

/// Runs `command` if its program is installed; prints that it is skipped if not.
fn output(command: &mut Command) -> Option<Output> {
    let output = command.output();
    if output.is_err() {
        println!("skipped: {:?} is not installed", command.get_program());
    }
    output.ok()
}

#[test]
fn pjdfstest() {
    if !is_root() {
        println!("skipped: pjdfstest has to be root");
        return;
    }
    let Some(mounted) = Mounted::new() else { return };
    let outside = tempfile::tempdir().unwrap();
    let configuration = outside.path().join("pjdfstest.toml");
    let text = "[features]\nposix_fallocate = {}\nrename_ctime = {}\nutimensat = {}\nutime_now = {}\n\
        [settings]\nnaptime = 0.002\nallow_remount = false\n\
        [dummy_auth]\nentries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"]]\n";
    fs::write(&configuration, text).unwrap();
    let mut command = Command::new("pjdfstest");
    command.arg("-c").arg(&configuration).arg("-s").arg(outside.path()).arg("-p").arg(mounted.root());
    let Some(output) = output(&mut command) else { return };
    let report = String::from_utf8_lossy(&output.stdout);
    let summary = report.lines().rfind(|line| line.starts_with("Summary")).unwrap_or("no summary");
    println!("{summary}");
    let failed: Vec<&str> = report.lines().filter(|line| line.ends_with("FAILED")).collect();
    assert!(summary.contains(": 0 failed"), "{summary}\n{}", failed.join("\n"));
}

#[test]
fn fsx() {
    let Some(mounted) = Mounted::new() else { return };
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
        let Some(output) = output(&mut command) else { return };
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "seed {}, {}: {said}", seed + 1, configuration.display());
    }
}
