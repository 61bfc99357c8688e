//! One program that lists directories while they change, and reads and writes by libc's streams, at random:
//! on a mount every call has to answer as on a file system of the kernel's.

use crate::beside::{assert_same, mounted, mounted_in_a_range, on_a_kernels, run};
use crate::rig::{Rig, amphi_ok, on_each_other, seed};

/// Calls of one run.
const CALLS: &str = "1200";

/// How the program is started on a mount.
const WAYS: [Option<&[&str]>; 3] = [None, Some(&["run", "--"]), Some(&["run", "--real-descriptors", "--"])];

/// Compares the mount of a rig with a file system of the kernel's, with as many seeds.
fn each_call_answers_as_in_the_kernel(rig: &Rig, what: &str, seeds: u64) {
    let program = rig.compiled("streams", &["-O1", "-Wall", "-Werror", "-Wno-format-truncation"]);
    let kernels = on_a_kernels();
    let first = seed();
    for seed in first..first + seeds {
        let arguments = [&seed.to_string(), CALLS];
        let expected = run(&program, None, &kernels.path().join("d"), &arguments);
        for start in WAYS {
            let got = run(&program, start, &rig.on_mount("d"), &arguments);
            assert_same(&expected, &got, &format!("{what}, {start:?}"), "streams::", seed);
        }
    }
    rig.umount();
    amphi_ok(&["fsck", &rig.image()]);
}

fn on(file_system: &str, seeds: u64) {
    if let Some(rig) = mounted(file_system) {
        each_call_answers_as_in_the_kernel(&rig, file_system, seeds);
    }
}

#[test]
fn streams_on_bytefs_answer_as_in_the_kernel() {
    on("bytefs", 4);
}

#[test]
fn streams_in_a_range_answer_as_in_the_kernel() {
    if let Some(rig) = mounted_in_a_range() {
        each_call_answers_as_in_the_kernel(&rig, "bytefs in a range", 2);
    }
}

/// Its device takes the commands itself.
#[test]
fn streams_on_devfs_answer_as_in_the_kernel() {
    on("devfs", 2);
}

/// Those whose commands are served as ByteFS's are, with `--long`.
#[test]
fn streams_on_other_file_systems_answer_as_in_the_kernel() {
    on_each_other(|file_system| on(file_system, 1));
}
