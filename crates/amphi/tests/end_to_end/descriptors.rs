//! One program that opens, copies, passes on, maps and uses descriptors at random, on a mount and on a file
//! system of the kernel's: every call has to answer the same on both, whether the program is run by `amphi
//! run` or not.

use crate::beside::{assert_same, mounted, mounted_in_a_range, on_a_kernels, run};
use crate::rig::{Rig, amphi_ok, on_each_other, seed};

/// Calls of one run.
const CALLS: &str = "2000";

/// How the program is started on a mount, and whether it makes calls that no library sees. On a placeholder
/// these fail.
const WAYS: [(Option<&[&str]>, &str); 4] = [
    (None, "1"),
    (Some(&["run", "--real-descriptors", "--"]), "0"),
    (Some(&["run", "--real-descriptors", "--"]), "1"),
    (Some(&["run", "--"]), "0"),
];

/// Compares the mount of a rig with a file system of the kernel's, with as many seeds.
fn each_call_answers_as_in_the_kernel(rig: &Rig, what: &str, seeds: u64) {
    let program = rig.compiled("descriptors", &["-O1", "-Wall", "-Werror", "-pthread"]);
    let kernels = on_a_kernels();
    let first = seed();
    for seed in first..first + seeds {
        for (start, past) in WAYS {
            let arguments = [&seed.to_string(), CALLS, past];
            let expected = run(&program, None, &kernels.path().join("d"), &arguments);
            let got = run(&program, start, &rig.on_mount("d"), &arguments);
            let what = format!("{what}, {start:?}, past the library {past}");
            assert_same(&expected, &got, &what, "descriptors::", seed);
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
fn calls_on_bytefs_answer_as_in_the_kernel() {
    on("bytefs", 6);
}

#[test]
fn calls_in_a_range_answer_as_in_the_kernel() {
    if let Some(rig) = mounted_in_a_range() {
        each_call_answers_as_in_the_kernel(&rig, "bytefs in a range", 3);
    }
}

/// Its device takes the commands itself.
#[test]
fn calls_on_devfs_answer_as_in_the_kernel() {
    on("devfs", 3);
}

/// Those whose commands are served as ByteFS's are, with `--long`.
#[test]
fn calls_on_others_answer_as_in_the_kernel() {
    on_each_other(|file_system| on(file_system, 6));
}
