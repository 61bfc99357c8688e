//! Programs that list one directory, by the queue or a range and through the kernel, while all of them change
//! names there: what stays is listed once, and each finds what it has done itself.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use crate::accelerated::library;
use crate::rig::{self, Rig, amphi_ok, can_mount, is_long, on_each_other, seed};
use crate::shared;

/// Names that nobody changes: several answers' worth.
const STAY: usize = 400;

/// A program that lists, with `amphi run` and its options, or without.
fn start(program: &str, accelerated: Option<&[&str]>) -> Command {
    let mut command = match accelerated {
        Some(options) => {
            let mut command = rig::command(&["run"]);
            command.args(options).args(["--", "timeout", "120", program]);
            command
        }
        None => {
            let mut command = Command::new("timeout");
            command.args(["120", program]);
            command
        }
    };
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn list(rig: &Rig, what: &str) {
    let directory = rig.on_mount("d");
    fs::create_dir(&directory).expect("made");
    for place in 0..STAY {
        let name = directory.join(format!("stay-{place}-{:0width$}", 0, width = place % 40 + 1));
        match place % 3 {
            0 => fs::write(&name, "").expect("made"),
            1 => fs::create_dir(&name).expect("made"),
            _ => symlink("nowhere", &name).expect("made"),
        }
    }
    let program = rig.compiled("listing", &["-O1", "-Wall", "-Werror"]);
    let listings = if is_long() { 1000 } else { 60 };
    let seed = seed();
    for accelerated in [[Some(&[][..]), Some(&["--real-descriptors"]), None], [None; 3]] {
        let children: Vec<_> = (1..)
            .zip(accelerated)
            .map(|(number, how)| {
                let mut command = start(&program, how);
                command
                    .arg(&directory)
                    .args([STAY as u64, number, seed * 10 + number, listings].map(|n| n.to_string()));
                command.spawn().expect("started")
            })
            .collect();
        for (how, child) in accelerated.iter().zip(children) {
            let output = child.wait_with_output().expect("ends");
            let said =
                [&output.stdout, &output.stderr].map(|said| String::from_utf8_lossy(said).into_owned());
            assert!(
                output.status.success(),
                "{what}, {how:?} of {accelerated:?}, {}: {said:?}\nreplay with: AMPHI_SEED={seed} cargo test \
                 -p amphi --test end_to_end listings (which program is faster is chance)",
                output.status
            );
        }
    }
    assert_eq!(fs::read_dir(&directory).expect("opens").count(), STAY);
    rig.umount();
    amphi_ok(&["fsck", &rig.image()]);
}

fn by_queue(file_system: &str) {
    if !can_mount() {
        return;
    }
    library();
    let rig = Rig::of(file_system, "1G");
    rig.mount();
    list(&rig, file_system);
}

#[test]
fn bytefs() {
    by_queue("bytefs");
}

#[test]
fn bytefs_in_a_range() {
    if !can_mount() {
        return;
    }
    library();
    let rig = Rig::new("1G");
    shared::mount(&rig, amphi_front_shared::Protection::Nothing);
    list(&rig, "bytefs in a range");
}

/// Its device takes the commands itself.
#[test]
fn devfs() {
    by_queue("devfs");
}

#[test]
fn others() {
    on_each_other(by_queue);
}
