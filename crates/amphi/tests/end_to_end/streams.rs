//! One program that lists directories while they change, and reads and writes by libc's streams, at random:
//! on a mount every call has to answer as on a file system of the kernel's.

use crate::beside::Held;
use crate::rig::on_each_other;

const HELD: Held = Held {
    name: "streams",
    flags: &["-O1", "-Wall", "-Werror", "-Wno-format-truncation"],
    calls: "1200",
    ways: &[(None, &[]), (Some(&["run", "--"]), &[]), (Some(&["run", "--real-descriptors", "--"]), &[])],
    in_order: |lines| lines,
};

#[test]
fn streams_on_bytefs_answer_as_in_the_kernel() {
    HELD.on("bytefs", 4);
}

#[test]
fn streams_in_a_range_answer_as_in_the_kernel() {
    HELD.in_a_range(2);
}

/// Its device takes the commands itself.
#[test]
fn streams_on_devfs_answer_as_in_the_kernel() {
    HELD.on("devfs", 2);
}

/// Those whose commands are served as ByteFS's are, with `--long`.
#[test]
fn streams_on_other_file_systems_answer_as_in_the_kernel() {
    on_each_other(|file_system| HELD.on(file_system, 1));
}
