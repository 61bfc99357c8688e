//! Two processes that change one tree in turn, on a mount and on a file system of the kernel's: one by the
//! library, the other by system calls that it does not see. Every call has to answer the same on both.

use std::fs;

use crate::beside::{Held, mounted};
use crate::rig::{amphi_ok, on_each_other};

const HELD: Held = Held {
    name: "turns",
    flags: &["-O1", "-Wall", "-Werror"],
    calls: "4000",
    ways: &[(None, &[]), (Some(&["run", "--real-descriptors", "--"]), &[]), (Some(&["run", "--"]), &[])],
    in_order: |lines| lines,
};

#[test]
fn calls_in_turn_on_bytefs_answer_as_in_the_kernel() {
    HELD.on("bytefs", 10);
}

#[test]
fn calls_in_turn_in_a_range_answer_as_in_the_kernel() {
    HELD.in_a_range(5);
}

#[test]
fn calls_in_turn_on_devfs_answer_as_in_the_kernel() {
    HELD.on("devfs", 5);
}

/// Those whose commands are served as ByteFS's are, with `--long`.
#[test]
fn calls_in_turn_on_others_answer_as_in_the_kernel() {
    on_each_other(|file_system| HELD.on(file_system, 10));
}

/// The kernel keeps a directory that is open where it was, until somebody looks it up where it is: within a
/// rename, which has both parents locked, it cannot move it. That was `ESTALE`.
#[test]
fn a_directory_that_is_open_and_was_moved_by_the_library_can_be_moved_by_the_kernel() {
    let Some(rig) = mounted("bytefs") else { return };
    let at = |name: &str| rig.on_mount(name);
    fs::create_dir_all(at("d/moved")).unwrap();
    fs::create_dir(at("e")).unwrap();
    let held = fs::File::open(at("d/moved")).unwrap();
    let (from, to) = (at("d/moved"), at("e/moved"));
    amphi_ok(&["run", "--", "mv", from.to_str().unwrap(), to.to_str().unwrap()]);
    fs::rename(at("e/moved"), at("d/again")).expect("the directory is where the library has put it");
    drop(held);
    rig.umount();
    amphi_ok(&["fsck", &rig.image()]);
}
