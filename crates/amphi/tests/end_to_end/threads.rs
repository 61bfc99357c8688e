//! One program whose threads use files at random, each in a directory of its own, and fork and spawn: on
//! a mount each thread has to be answered as on a file system of the kernel's, whatever the others do.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::accelerated::library;
use crate::beside::{assert_same, on_a_kernels, told};
use crate::rig::{Rig, amphi_ok, can_mount, on_each_other, seed};
use crate::shared;

/// Calls of each thread in one run.
const CALLS: &str = "800";

/// How the program is started on a mount.
const WAYS: [&[&str]; 2] = [&["run", "--"], &["run", "--placeholders", "--"]];

/// What the program says of each of its calls in a directory that is made for it, thread by thread.
fn run(program: &str, start: Option<&[&str]>, directory: &Path, seed: u64) -> Vec<String> {
    fs::create_dir(directory).unwrap();
    let mut command = Command::new("timeout");
    command.arg("120");
    if let Some(words) = start {
        command.arg(env!("CARGO_BIN_EXE_amphi")).args(words);
    }
    let output = command.arg(program).arg(directory).args([&seed.to_string(), CALLS]).output().unwrap();
    fs::remove_dir_all(directory).unwrap();
    let mut lines = told(&output);
    lines.sort_by_key(|line| line.split(' ').next().and_then(|thread| thread.parse::<u32>().ok()));
    lines
}

/// Compares the mount of a rig with a file system of the kernel's, with as many seeds.
fn each_thread_is_answered_as_in_the_kernel(rig: &Rig, what: &str, seeds: u64) {
    let program = rig.compiled("threads", &["-O1", "-Wall", "-Werror", "-pthread"]);
    let kernels = on_a_kernels();
    let first = seed();
    for seed in first..first + seeds {
        let expected = run(&program, None, &kernels.path().join("d"), seed);
        for start in WAYS {
            let got = run(&program, Some(start), &rig.on_mount("d"), seed);
            assert_same(&expected, &got, &format!("{what}, {start:?}"), "threads::", seed);
        }
    }
    rig.umount();
    amphi_ok(&["fsck", &rig.image()]);
}

fn on(file_system: &str, seeds: u64) {
    if !can_mount() {
        return;
    }
    library();
    let rig = Rig::of(file_system, "1G");
    rig.mount();
    each_thread_is_answered_as_in_the_kernel(&rig, file_system, seeds);
}

#[test]
fn threads_on_bytefs_are_answered_as_in_the_kernel() {
    on("bytefs", 4);
}

#[test]
fn threads_in_a_range_are_answered_as_in_the_kernel() {
    if !can_mount() {
        return;
    }
    library();
    let rig = Rig::new("1G");
    shared::mount(&rig, amphi_front_shared::Protection::Nothing);
    each_thread_is_answered_as_in_the_kernel(&rig, "bytefs in a range", 2);
}

/// Its device takes the commands itself.
#[test]
fn threads_on_devfs_are_answered_as_in_the_kernel() {
    on("devfs", 2);
}

/// Those whose commands are served as ByteFS's are, with `--long`.
#[test]
fn threads_on_others_are_answered_as_in_the_kernel() {
    on_each_other(|file_system| on(file_system, 3));
}
