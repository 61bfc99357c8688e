//! Several programs by `amphi run` at once, each in a directory of its own, that change it through the queue
//! and through the kernel and look at it through both. They share what the mount knows: numbers of inodes
//! that one gives back and another one gets, and what the kernel was told of them.

use std::fs;
use std::process::{Command, Stdio};

use crate::accelerated::library;
use crate::rig::{Rig, amphi_ok, can_mount};
use crate::shared;

/// Programs at once.
const PROGRAMS: u64 = 3;

/// Has programs change a mount, and says which file system and seed it was if one sees something old.
fn change(rig: &Rig, what: &str, changes: u64) {
    let seed = std::env::var("AMPHI_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1_u64);
    let program = rig.compiled("two_doors", &["-O1", "-Wall", "-Werror"]);
    for options in [&["--placeholders"][..], &[]] {
        let children: Vec<_> = (1..=PROGRAMS)
            .map(|number| {
                let directory = rig.on_mount(&format!("d{number}"));
                fs::create_dir(&directory).unwrap();
                let mut command = Command::new("timeout");
                command
                    .args(["120", env!("CARGO_BIN_EXE_amphi"), "run"])
                    .args(options)
                    .args(["--", &program]);
                command.arg(&directory).args([(seed * PROGRAMS + number).to_string(), changes.to_string()]);
                (directory, command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
            })
            .collect();
        for (directory, child) in children {
            let output = child.wait_with_output().unwrap();
            let said =
                [&output.stdout, &output.stderr].map(|said| String::from_utf8_lossy(said).into_owned());
            assert!(
                output.status.success(),
                "{what} {options:?}, {}: {said:?}\nreplay with AMPHI_SEED={seed}; who is when is by chance",
                output.status
            );
            fs::remove_dir_all(directory).unwrap();
        }
    }
    rig.umount();
    amphi_ok(&["fsck", &rig.image()]);
}

fn changes_show_at_both_doors(file_system: &str, changes: u64) {
    if !can_mount() {
        return;
    }
    library();
    let rig = Rig::of(file_system, "1G");
    rig.mount();
    change(&rig, file_system, changes);
}

#[test]
fn bytefs() {
    changes_show_at_both_doors("bytefs", 3000);
}

#[test]
fn bytefs_in_a_range() {
    if !can_mount() {
        return;
    }
    library();
    let rig = Rig::new("1G");
    shared::mount(&rig, amphi_front_shared::Protection::Nothing);
    change(&rig, "bytefs in a range", 3000);
}

/// Its device takes the commands itself.
#[test]
fn devfs() {
    changes_show_at_both_doors("devfs", 1500);
}

/// Those whose commands are served as ByteFS's are; two thirds of the time of all, so with `--long`.
#[test]
fn others() {
    if std::env::var_os("AMPHI_TEST_LONG").is_none() {
        println!("SKIPPED: with `cargo xtask test --long`");
        return;
    }
    for file_system in ["augefs", "romefs", "ext4like", "f2fslike", "novalike", "pmfslike", "toy"] {
        changes_show_at_both_doors(file_system, 3000);
    }
}
