//! One program that opens, copies, passes on, maps and uses descriptors at random, on a mount and on a file
//! system of the kernel's: every call has to answer the same on both, whether the program is run by `amphi
//! run` or not.

use crate::beside::Held;
use crate::rig::on_each_other;

/// The word behind says whether it makes calls that no library sees. On a placeholder these fail.
const HELD: Held = Held {
    name: "descriptors",
    flags: &["-O1", "-Wall", "-Werror", "-pthread"],
    calls: "2000",
    ways: &[
        (None, &["1"]),
        (Some(&["run", "--real-descriptors", "--"]), &["0"]),
        (Some(&["run", "--real-descriptors", "--"]), &["1"]),
        (Some(&["run", "--"]), &["0"]),
    ],
    in_order: |lines| lines,
};

#[test]
fn calls_on_bytefs_answer_as_in_the_kernel() {
    HELD.on("bytefs", 6);
}

#[test]
fn calls_in_a_range_answer_as_in_the_kernel() {
    HELD.in_a_range(3);
}

/// Its device takes the commands itself.
#[test]
fn calls_on_devfs_answer_as_in_the_kernel() {
    HELD.on("devfs", 3);
}

/// Those whose commands are served as ByteFS's are, with `--long`.
#[test]
fn calls_on_others_answer_as_in_the_kernel() {
    on_each_other(|file_system| HELD.on(file_system, 6));
}
