//! Two processes that change one tree in turn, on a mount and on a file system of the kernel's: one by the
//! library, the other by system calls that it does not see. Every call has to answer the same on both.

use std::fs;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

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
    HELD.on("bytefs", 6);
}

#[test]
fn calls_in_turn_in_a_range_answer_as_in_the_kernel() {
    HELD.in_a_range(3);
}

#[test]
fn calls_in_turn_on_devfs_answer_as_in_the_kernel() {
    HELD.on("devfs", 3);
}

/// Those whose commands are served as ByteFS's are, with `--long`.
#[test]
fn calls_in_turn_on_others_answer_as_in_the_kernel() {
    on_each_other(|file_system| HELD.on(file_system, 10));
}

/// The kernel keeps a directory that is in use where it was, which is no place any more, until somebody looks
/// it up where it is. Within a rename, which has both parents locked, it cannot move it: that was `ESTALE`.
/// And who works in it did not hear where that is.
#[test]
fn a_directory_in_use_that_the_library_moves_is_moved_in_the_kernel_too() {
    let Some(rig) = mounted("bytefs") else { return };
    let at = |name: &str| rig.on_mount(name);
    for dir in ["d/held", "d/worked-in", "e"] {
        fs::create_dir_all(at(dir)).unwrap();
    }
    let held = fs::File::open(at("d/held")).unwrap();
    let mut worker = Command::new("sh")
        .args(["-c", "echo && read go && /bin/pwd"])
        .current_dir(at("d/worked-in"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    worker.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    for (from, to) in [("d/held", "e/held"), ("d/worked-in", "d/elsewhere")] {
        let (from, to) = (at(from), at(to));
        amphi_ok(&["run", "--", "mv", from.to_str().unwrap(), to.to_str().unwrap()]);
    }
    fs::rename(at("e/held"), at("d/again")).expect("the directory is where the library has put it");
    worker.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    let said = worker.wait_with_output().unwrap().stdout;
    assert_eq!(String::from_utf8(said).unwrap().trim(), at("d/elsewhere").to_str().unwrap());
    drop(held);
    rig.umount();
    amphi_ok(&["fsck", &rig.image()]);
}
