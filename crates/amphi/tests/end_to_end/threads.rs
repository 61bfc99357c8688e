//! One program whose threads use files at random, each in a directory of its own, and fork and spawn: on
//! a mount each thread has to be answered as on a file system of the kernel's, whatever the others do.

use crate::beside::{assert_same, mounted, mounted_in_a_range, on_a_kernels, run};
use crate::rig::{Rig, amphi_ok, on_each_other, seed};

/// Calls of each thread in one run.
const CALLS: &str = "800";

/// How the program is started on a mount.
const WAYS: [&[&str]; 2] = [&["run", "--"], &["run", "--real-descriptors", "--"]];

/// These lines, thread by thread.
fn by_thread(mut lines: Vec<String>) -> Vec<String> {
    lines.sort_by_key(|line| line.split(' ').next().and_then(|thread| thread.parse::<u32>().ok()));
    lines
}

/// Compares the mount of a rig with a file system of the kernel's, with as many seeds.
fn each_thread_is_answered_as_in_the_kernel(rig: &Rig, what: &str, seeds: u64) {
    let program = rig.compiled("threads", &["-O1", "-Wall", "-Werror", "-pthread"]);
    let kernels = on_a_kernels();
    let first = seed();
    for seed in first..first + seeds {
        let arguments = [&seed.to_string(), CALLS];
        let expected = by_thread(run(&program, None, &kernels.path().join("d"), &arguments));
        for start in WAYS {
            let got = by_thread(run(&program, Some(start), &rig.on_mount("d"), &arguments));
            assert_same(&expected, &got, &format!("{what}, {start:?}"), "threads::", seed);
        }
    }
    rig.umount();
    amphi_ok(&["fsck", &rig.image()]);
}

fn on(file_system: &str, seeds: u64) {
    if let Some(rig) = mounted(file_system) {
        each_thread_is_answered_as_in_the_kernel(&rig, file_system, seeds);
    }
}

#[test]
fn threads_on_bytefs_are_answered_as_in_the_kernel() {
    on("bytefs", 4);
}

#[test]
fn threads_in_a_range_are_answered_as_in_the_kernel() {
    if let Some(rig) = mounted_in_a_range() {
        each_thread_is_answered_as_in_the_kernel(&rig, "bytefs in a range", 2);
    }
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
