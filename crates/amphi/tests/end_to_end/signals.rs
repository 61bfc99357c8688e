//! Signals that come while a program is inside of a range: they wait until it is outside, without a system
//! call for each call.

use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};

use amphi_front_shared::Protection;
use amphi_rt::random::Generator;
use amphi_rt::time;
use rustix::process::{Pid, Signal, kill_process};

use crate::accelerated::library;
use crate::rig::{self, Rig, wait_until};
use crate::shared::{mount, protections, range_process};

/// A mount with a range, and the program that is sent signals.
fn rig(protection: Protection) -> Rig {
    let rig = Rig::new("256M");
    library();
    mount(&rig, protection);
    rig.compiled("signals", &["-O1", "-Wall", "-Werror", "-Wno-deprecated-declarations", "-pthread"]);
    rig
}

/// The program, told what to try.
fn program(rig: &Rig, what: &str) -> Command {
    let mut command = rig::command(&["run", "--"]);
    command.args([rig.path("signals"), what.to_owned(), rig.on_mount(what).display().to_string()]);
    command
}

/// The program at work, in a group of its own: only then its terminal's signals stop it.
fn busy(rig: &Rig) -> (Child, Pid) {
    let mut command = program(rig, "busy");
    let mut child = command.process_group(0).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut said = String::new();
    BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut said).expect("it says so");
    assert_eq!(said, "busy\n");
    let pid = Pid::from_child(&child);
    (child, pid)
}

fn is_stopped(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}

fn is_since(major: u32, minor: u32) -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("the kernel says");
    let mut numbers = release.split(['.', '-']).map(|number| number.parse().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(major), Some(minor))
}

#[test]
fn calls_into_a_range_cost_no_system_call_and_handlers_run_outside() {
    for protection in protections() {
        let rig = rig(protection);
        // Older kernels than 6.12 cannot put a signal on a closed stack: two system calls keep signals off.
        let keeps_off = protection == Protection::Keys && !is_since(6, 12);
        let without = if keeps_off { &[][..] } else { &["calls"] };
        for what in [without, &["handlers", "changes"]].concat() {
            let ended = program(&rig, what).output().expect("it starts");
            assert!(ended.status.success(), "{what}, {protection:?}: {ended:?}");
        }
        rig.umount();
        rig.fsck().expect("it is clean");
    }
}

#[test]
fn a_signal_that_ends_or_stops_a_program_does_so_outside_of_the_range() {
    protections().into_iter().for_each(is_outside_when_signalled);
}

fn is_outside_when_signalled(protection: Protection) {
    let rig = rig(protection);
    let range = range_process(rig.daemon_pid());
    let mut random = Generator::new(31);
    for signal in [Signal::TERM, Signal::ALARM, Signal::USR1, Signal::USR2, Signal::PROF].repeat(6) {
        let (mut child, pid) = busy(&rig);
        time::sleep_ns(random.below(3_000_000));
        kill_process(pid, signal).expect("it is ours");
        assert_eq!(child.wait().expect("it ends").signal(), Some(signal.as_raw()));
    }
    let (mut child, pid) = busy(&rig);
    let (mut other, _) = busy(&rig);
    for _ in 0..20 {
        time::sleep_ns(random.below(3_000_000));
        kill_process(pid, Signal::TSTP).expect("it is ours");
        wait_until("it is stopped", || is_stopped(pid));
        // Whoever stopped inside would keep others from what it has locked.
        std::fs::write(rig.on_mount("meanwhile"), "written").expect("the mount serves");
        kill_process(pid, Signal::CONT).expect("it is ours");
        wait_until("it goes on", || !is_stopped(pid));
    }
    for child in [&mut child, &mut other] {
        kill_process(Pid::from_child(child), Signal::TERM).expect("it is ours");
        assert_eq!(child.wait().expect("it ends").signal(), Some(Signal::TERM.as_raw()));
    }
    assert_eq!(range_process(rig.daemon_pid()), range, "no end of a program was inside");
    rig.umount();
    rig.fsck().expect("it is clean");
}
