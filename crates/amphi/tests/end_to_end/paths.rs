//! One program that makes, moves, links, looks for and forbids things by paths at random, as root and as a
//! user, on a mount and on a file system of the kernel's: every call has to answer the same on both, and be
//! refused with the same error, whether the program is accelerated or not.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::accelerated::library;
use crate::beside::{assert_same, on_a_kernels, told};
use crate::rig::{Rig, amphi_ok, can_mount, on_each_other, seed};
use crate::shared;

/// Calls of one phase.
const CALLS: &str = "2000";
/// How the program is started on a mount: variables of its environment.
const WAYS: [&[&str]; 3] = [&[], &["AMPHI_RUN"], &["AMPHI_RUN", "AMPHI_REAL_DESCRIPTORS"]];
/// The user's own group is the first.
const USER: [&str; 6] = ["--reuid", "1000", "--regid", "1000", "--groups", "1000,2000"];

/// What the program says of each of its calls, as root, as a user and as root again.
fn run(rig: &Rig, program: &str, variables: &[&str], directory: &Path, seed: u64) -> Vec<String> {
    let tree = directory.join("t");
    fs::create_dir_all(&tree).unwrap();
    for open in [directory, &tree] {
        fs::set_permissions(open, Permissions::from_mode(0o777)).unwrap();
    }
    let mut lines = Vec::new();
    for (phase, user) in [(0, &[][..]), (1000, &USER), (2000, &[])] {
        let mut command = Command::new("setpriv");
        command.args(user).args(["timeout", "120", program]).arg(&tree);
        command.args([&(seed + phase).to_string(), CALLS]);
        for variable in variables {
            command.env(variable, "1").env("LD_PRELOAD", rig.path("libamphi_preload.so"));
        }
        let output = command.output().unwrap();
        lines.extend(told(&output));
    }
    fs::remove_dir_all(directory).unwrap();
    lines
}

/// Compares the mount of a rig with a file system of the kernel's, with as many seeds.
fn each_call_answers_as_in_the_kernel(rig: &Rig, what: &str, seeds: u64) {
    let program = rig.compiled("paths", &["-O1", "-Wall", "-Werror", "-Wno-format-truncation"]);
    let built = Path::new(env!("CARGO_BIN_EXE_amphi")).with_file_name("libamphi_preload.so");
    fs::copy(built, rig.path("libamphi_preload.so")).unwrap();
    // The user has to get there.
    fs::set_permissions(rig.path("."), Permissions::from_mode(0o755)).unwrap();
    let kernels = on_a_kernels();
    fs::set_permissions(kernels.path(), Permissions::from_mode(0o755)).unwrap();
    let first = seed();
    for seed in first..first + seeds {
        for variables in WAYS {
            let expected = run(rig, &program, &[], &kernels.path().join("d"), seed);
            let got = run(rig, &program, variables, &rig.on_mount("d"), seed);
            assert_same(&expected, &got, &format!("{what}, {variables:?}"), "paths::", seed);
        }
    }
    rig.umount();
    amphi_ok(&["fsck", &rig.image()]);
}

/// Whether this can be tried here: only root can be two users.
fn can_try() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("SKIPPED: needs root");
    }
    is_root && can_mount()
}

fn on(file_system: &str, seeds: u64) {
    if !can_try() {
        return;
    }
    library();
    let rig = Rig::of(file_system, "1G");
    rig.mount_for_all();
    each_call_answers_as_in_the_kernel(&rig, file_system, seeds);
}

#[test]
fn calls_on_bytefs_answer_as_in_the_kernel() {
    on("bytefs", 4);
}

/// The range is its owner's, here root's; the user goes by the queue.
#[test]
fn calls_in_a_range_answer_as_in_the_kernel() {
    if !can_try() {
        return;
    }
    library();
    let rig = Rig::new("1G");
    shared::mount(&rig, amphi_front_shared::Protection::Nothing);
    each_call_answers_as_in_the_kernel(&rig, "bytefs in a range", 2);
}

/// Its device takes the commands itself.
#[test]
fn calls_on_devfs_answer_as_in_the_kernel() {
    on("devfs", 2);
}

/// Those whose commands are served as ByteFS's are, with `--long`.
#[test]
fn calls_on_others_answer_as_in_the_kernel() {
    on_each_other(|file_system| on(file_system, 4));
}
