//! Programs that call one mount at the same time, by all of its doors: some order of their calls explains
//! what each of them was answered, and what each finds when all have returned.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use amphi_conformance::random::{Door, Programs};
use rustix::time::{ClockId, clock_gettime};

use crate::accelerated::Agent;
use crate::doors;
use crate::rig::{Rig, is_long, on_each_other, seed};

/// Nanoseconds from a line to when all start: enough for each to have read it.
const HEAD_START_NS: i64 = 200_000;

/// A program that calls the mount as it is told, with `amphi run` and its options, or without.
fn start(rig: &Rig, program: &str, accelerated: Option<&[&str]>) -> Agent {
    let mut command = doors::program(accelerated, &[program]);
    let mut caller = Agent::spawn(command.arg(rig.mount_point()));
    assert_eq!(caller.said("its start"), "ready");
    caller
}

/// Has each call what it is told when it is `start_ns`; what they say of it.
fn called(callers: &mut [Agent], calls: &[Vec<String>], start_ns: i64) -> Vec<Vec<String>> {
    for (caller, calls) in callers.iter_mut().zip(calls) {
        caller.told(&format!("{}\ngo {start_ns}", calls.join("\n")));
    }
    let said =
        |(caller, calls): (&mut Agent, &Vec<String>)| calls.iter().map(|call| caller.said(call)).collect();
    callers.iter_mut().zip(calls).map(said).collect()
}

fn now_ns() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// Has programs, accelerated by these options or not, call a mount.
fn call(rig: &Rig, what: &str, accelerated: &[Option<&[&str]>], rounds: u64) {
    for dir in ["x", "y"] {
        fs::create_dir(rig.on_mount(dir)).expect("made");
        fs::set_permissions(rig.on_mount(dir), fs::Permissions::from_mode(0o755)).expect("set");
        let file = rig.on_mount(dir).join("0");
        fs::write(&file, "").expect("made");
        fs::set_permissions(file, fs::Permissions::from_mode(0o644)).expect("set");
    }
    let program = rig.compiled("caller", &["-O1", "-Wall", "-Werror"]);
    let mut callers: Vec<_> = accelerated.iter().map(|how| start(rig, &program, *how)).collect();
    let door = |how: &Option<&[&str]>| match how {
        Some([]) => Door::Own,
        Some(_) => Door::OwnWithDescriptors,
        None => Door::Kernel,
    };
    let doors: Vec<Door> = accelerated.iter().map(door).collect();
    let seed = seed();
    let mut programs = Programs::new(seed, &doors);
    let questions = vec![Programs::questions(); callers.len()];
    for round in 0..rounds {
        let calls = programs.draw();
        let answers = called(&mut callers, &calls, now_ns() + HEAD_START_NS);
        let found = called(&mut callers, &questions, 0);
        if let Err(why) = programs.judge(&answers, &found) {
            panic!(
                "{what}, {accelerated:?}, round {round}: {why}\nreplay with: AMPHI_SEED={seed} cargo test -p \
                 amphi --test end_to_end orders (which program is faster is chance)"
            );
        }
    }
    callers.into_iter().for_each(|caller| drop(caller.report()));
    fs::remove_dir_all(rig.on_mount("x")).expect("removed");
    fs::remove_dir_all(rig.on_mount("y")).expect("removed");
}

/// What `amphi run` is given: nothing, and that descriptors are to be the kernel's.
const QUICK: Option<&[&str]> = Some(&[]);
const REAL: Option<&[&str]> = Some(&["--real-descriptors"]);

fn calls_have_an_order(rig: &Rig, what: &str) {
    let rounds = if is_long() { 5000 } else { 300 };
    call(rig, what, &[QUICK, REAL, QUICK], rounds);
    call(rig, what, &[QUICK, REAL, None], rounds);
    call(rig, what, &[None, None, None], rounds);
}

/// Whether this can be tried here.
fn can_try() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("SKIPPED: needs root, to link by descriptor");
    }
    is_root
}

fn by_queue(file_system: &str) {
    if can_try() {
        doors::by_queue(file_system, calls_have_an_order);
    }
}

#[test]
fn bytefs() {
    by_queue("bytefs");
}

#[test]
fn bytefs_in_a_range() {
    if can_try() {
        doors::in_a_range(calls_have_an_order);
    }
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
