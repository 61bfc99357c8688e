//! Several programs by `amphi run` at once that go through the queue and through the kernel. Where each has a
//! directory of its own, it sees each of its changes at both doors: they share numbers of inodes that one
//! gives back and another one gets, and what the kernel was told of them. Where they share a directory, no
//! call fails by what another door was doing.

use std::fs;
use std::process::{Command, Stdio};

use crate::doors;
use crate::rig::{Rig, on_each_other, seed};

/// Has programs change a mount, each a directory of its own and then all the same one, and says which file
/// system and seed it was if one sees something old or is refused what POSIX does not refuse.
fn change(rig: &Rig, what: &str, changes: u64) {
    let flags = ["-O1", "-Wall", "-Werror"];
    let (own, same) = (rig.compiled("two_doors", &flags), rig.compiled("contended", &flags));
    for options in [&["--real-descriptors"][..], &[]] {
        let what = format!("{what} {options:?}");
        run(rig, &what, options, [&own, "d1", "d2", "d3"], changes);
        run(rig, &what, options, [&same, "d", "d", "d"], 2 * changes);
    }
}

/// A program as often as there are directories, at once.
fn run(rig: &Rig, what: &str, options: &[&str], [program, directories @ ..]: [&str; 4], calls: u64) {
    let seed = seed();
    let directories = directories.map(|name| rig.on_mount(name));
    for directory in &directories {
        fs::create_dir_all(directory).unwrap();
    }
    let children: Vec<_> = (1..)
        .zip(&directories)
        .map(|(number, directory)| {
            let mut command = Command::new("timeout");
            command.args(["120", env!("CARGO_BIN_EXE_amphi"), "run"]).args(options).args(["--", program]);
            command.arg(directory).args([(seed * 10 + number).to_string(), calls.to_string()]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for child in children {
        doors::succeeds(child, &format!("{what}, {program}"), "two_doors", seed);
    }
    for directory in &directories {
        if directory.exists() {
            fs::remove_dir_all(directory).unwrap();
        }
    }
}

fn changes_show_at_both_doors(file_system: &str, changes: u64) {
    doors::by_queue(file_system, |rig, what| change(rig, what, changes));
}

#[test]
fn bytefs() {
    changes_show_at_both_doors("bytefs", 3000);
}

#[test]
fn bytefs_in_a_range() {
    doors::in_a_range(|rig, what| change(rig, what, 3000));
}

/// Its device takes the commands itself.
#[test]
fn devfs() {
    changes_show_at_both_doors("devfs", 1500);
}

/// Those whose commands are served as ByteFS's are; two thirds of the time of all, so with `--long`.
#[test]
fn others() {
    on_each_other(|file_system| changes_show_at_both_doors(file_system, 3000));
}
