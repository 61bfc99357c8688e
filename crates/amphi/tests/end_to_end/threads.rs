//! One program whose threads use files at random, each in a directory of its own, and fork and spawn: on
//! a mount each thread has to be answered as on a file system of the kernel's, whatever the others do.

use crate::beside::Held;
use crate::rig::on_each_other;

const HELD: Held = Held {
    name: "threads",
    flags: &["-O1", "-Wall", "-Werror", "-pthread"],
    // Of each thread.
    calls: "800",
    ways: &[(Some(&["run", "--"]), &[]), (Some(&["run", "--real-descriptors", "--"]), &[])],
    in_order: by_thread,
};

/// These lines, thread by thread.
fn by_thread(mut lines: Vec<String>) -> Vec<String> {
    lines.sort_by_key(|line| line.split(' ').next().and_then(|thread| thread.parse::<u32>().ok()));
    lines
}

#[test]
fn threads_on_bytefs_are_answered_as_in_the_kernel() {
    HELD.on("bytefs", 4);
}

#[test]
fn threads_in_a_range_are_answered_as_in_the_kernel() {
    HELD.in_a_range(2);
}

/// Its device takes the commands itself.
#[test]
fn threads_on_devfs_are_answered_as_in_the_kernel() {
    HELD.on("devfs", 2);
}

/// Those whose commands are served as ByteFS's are, with `--long`.
#[test]
fn threads_on_others_are_answered_as_in_the_kernel() {
    on_each_other(|file_system| HELD.on(file_system, 3));
}
