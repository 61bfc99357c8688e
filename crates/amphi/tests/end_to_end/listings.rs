//! Programs that list one directory, by the queue or a range and through the kernel, while all of them change
//! names there: what stays is listed once, and each finds what it has done itself.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Stdio;

use crate::doors;
use crate::rig::{Rig, is_long, on_each_other, seed};

/// Names that nobody changes: several answers' worth.
const STAY: usize = 400;

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
                let numbers = [STAY as u64, number, seed * 10 + number, listings].map(|n| n.to_string());
                let mut command = doors::program(how, &["timeout", "120", &program]);
                command.arg(&directory).args(numbers).stdout(Stdio::piped()).stderr(Stdio::piped());
                command.spawn().expect("started")
            })
            .collect();
        for (how, child) in accelerated.iter().zip(children) {
            doors::succeeds(child, &format!("{what}, {how:?} of {accelerated:?}"), "listings", seed);
        }
    }
    assert_eq!(fs::read_dir(&directory).expect("opens").count(), STAY);
}

#[test]
fn bytefs() {
    doors::by_queue("bytefs", list);
}

#[test]
fn bytefs_in_a_range() {
    doors::in_a_range(list);
}

/// Its device takes the commands itself.
#[test]
fn devfs() {
    doors::by_queue("devfs", list);
}

#[test]
fn others() {
    on_each_other(|file_system| doors::by_queue(file_system, list));
}
