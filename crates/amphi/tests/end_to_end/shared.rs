//! A mount whose file system lies in a range of addresses that programs share: programs that call it there,
//! programs that reach it through the kernel and by the queue, and deaths of all of them.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;
use std::sync::Once;

use amphi_front_shared::{Protection, keys_are_here};
use serde_json::Value;

use crate::accelerated::{Agent, counts};
use crate::command::fails_saying;
use crate::rig::{self, Rig, amphi_ok, can_mount};

/// Builds the program of the range and puts it beside the command.
pub fn core() {
    static BUILT: Once = Once::new();
    BUILT.call_once(|| {
        // With faults, asleep, as the crate's own tests build it: so cargo builds it once.
        let how = if cfg!(debug_assertions) {
            &["--features", "core,planted-bugs"][..]
        } else {
            &["--release", "--features", "core"]
        };
        let built = Command::new(env!("CARGO"))
            .args(["rustc", "--quiet", "-p", "amphi-front-shared-core", "--bin", "amphi-shared-core"])
            .args(how)
            .args(["--", "-C", "target-feature=+crt-static"])
            .status()
            .expect("cargo starts");
        assert!(built.success(), "the program of the range is not built");
    });
}

/// How a range is protected here, one after the other: not at all, and by a key where the processor has keys.
/// Page protections are slow.
pub fn protections() -> Vec<Protection> {
    if !can_mount() {
        return Vec::new();
    }
    if keys_are_here() {
        return vec![Protection::Nothing, Protection::Keys];
    }
    println!("SKIPPED: ranges behind a protection key, which the processor does not have");
    vec![Protection::Nothing]
}

/// A mount with a range.
pub fn mount(rig: &Rig, protection: Protection) {
    core();
    let how = match protection {
        Protection::Keys => "shared,allow_other",
        Protection::Pages => "shared=pages,allow_other",
        Protection::Nothing => "shared=unprotected,allow_other",
    };
    amphi_ok(&["mount", "--free", "-o", how, &rig.image(), &rig.mount_point()]);
    assert_eq!(info(rig)["doors"]["range"], protection.name());
}

fn info(rig: &Rig) -> Value {
    serde_json::from_str(&amphi_ok(&["info", "--json", &rig.mount_point()])).expect("JSON")
}

/// Whether a process says that its calls went into a range.
pub fn is_by_range(report: &str) -> bool {
    report.lines().any(|line| line.split_whitespace().eq(["range", "kernel"]))
}

/// The process that made the range of a daemon: its only child, also after it has begun anew.
pub fn range_process(daemon: u32) -> u32 {
    let parent = |process: &str| {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse::<u32>().ok()
    };
    let all = fs::read_dir("/proc").expect("/proc").flatten();
    let names = all.filter_map(|entry| entry.file_name().into_string().ok());
    let children: Vec<u32> =
        names.filter(|name| parent(name) == Some(daemon)).filter_map(|name| name.parse().ok()).collect();
    let [child] = children[..] else { panic!("one that has ended is still there: {children:?}") };
    child
}

#[test]
fn programs_call_the_file_system_and_everybody_sees_it_at_once() {
    protections().into_iter().for_each(is_called_by_programs);
}

fn is_called_by_programs(protection: Protection) {
    let rig = Rig::new("256M");
    fs::set_permissions(rig.path(""), fs::Permissions::from_mode(0o755)).expect("it is ours");
    mount(&rig, protection);
    let path = |name: &str| rig.on_mount(name).display().to_string();
    assert_eq!(info(&rig)["filesystem"]["type"], "bytefs");

    let mut one = Agent::start(&rig);
    let mut other = Agent::start_with(&rig, &[]);
    one.number(&format!("open 1 {} 0", path("f")));
    assert_eq!(one.number("write 1 5000 97"), 5000);
    assert_eq!((one.number("seek 1"), one.number("size 1")), (5000, 5000));
    assert_eq!(fs::read(path("f")).unwrap(), [b'a'; 5000]);
    other.number(&format!("open 1 {} 0", path("f")));
    for (step, byte) in (98..110).enumerate() {
        // Each change by one of the three shows to the two others, also what they have just looked at.
        let len = 100 + step as i64;
        match step % 3 {
            0 => assert_eq!(one.number(&format!("pwrite 1 0 {len} {byte}")), len),
            1 => assert_eq!(other.number(&format!("pwrite 1 0 {len} {byte}")), len),
            _ => fs::write(path("f"), vec![byte as u8; len as usize]).unwrap(),
        }
        let seen = fs::read(path("f")).unwrap();
        assert_eq!(seen[..len as usize], vec![byte as u8; len as usize], "step {step}");
        assert_eq!(fs::metadata(path("f")).unwrap().len(), seen.len() as u64, "step {step}");
        let by_one = one.asked(&format!("pread 1 0 {len}"));
        assert_eq!(by_one, other.asked(&format!("pread 1 0 {len}")), "step {step}");
    }
    assert_eq!(one.number("sync 1"), 0);
    assert!(!rig.on_mount("d").exists(), "the kernel remembers that there is none");
    assert_eq!(other.number(&format!("mkdir {}", path("d"))), 0);
    assert_eq!(fs::metadata(path("d")).unwrap().mode() & 0o777, 0o755);
    assert_eq!(one.number(&format!("mkdir {}", path("d"))), -17, "EEXIST");
    assert_eq!(one.number(&format!("rename {} {}", path("f"), path("d/g"))), 0);
    assert!(!rig.on_mount("f").exists() && rig.on_mount("d/g").exists());
    assert_eq!(other.number(&format!("rmdir {}", path("d"))), -39, "ENOTEMPTY");
    assert_eq!(other.number(&format!("unlink {}", path("d/g"))), 0);
    assert_eq!(one.asked("pread 1 0 0"), "0 0", "an open file lives without a name");
    assert_eq!(one.number(&format!("rmdir {}", path("d"))), 0);

    // What programs do that is not one call after another.
    one.number(&format!("open 2 {} 0", path("threads")));
    assert_eq!(one.number("threads 2"), 4 * 200 * 8);
    one.number(&format!("open 3 {} 0", path("forked")));
    assert_eq!(one.number("fork 3"), 17);
    assert_eq!(fs::read(path("forked")).unwrap(), b"parentchildparent");
    one.number(&format!("open 4 {} {}", path("signals"), 0o2000));
    let written = one.number("signalled 4");
    assert_eq!(fs::metadata(path("signals")).unwrap().len() as i64, written);
    assert_eq!(one.number(&format!("byname {}", path("names"))), 0);
    assert_eq!(other.number(&format!("needs {} mu", path("mapped"))), 0, "a pass for what has no name");
    for how in ["x", "_", "e"] {
        let mut leaving = Agent::start(&rig);
        leaving.number(&format!("open 1 {} 0", path(how)));
        leaving.told(&format!("leave 1 {how}"));
        leaving.report();
    }
    assert_eq!(one.number(&format!("unlink {}", path("threads"))), 0, "no end of a program ended the range");

    if rustix::process::geteuid().is_root() {
        // Another user is not let in, and uses the queue within what it may.
        fs::set_permissions(rig.mount_point(), fs::Permissions::from_mode(0o755)).expect("root's");
        let mut user = Agent::as_user(&rig, 1234);
        assert_eq!(user.number(&format!("mkdir {}", path("users"))), -13, "EACCES");
        fs::set_permissions(rig.mount_point(), fs::Permissions::from_mode(0o777)).expect("root's");
        assert_eq!(user.number(&format!("mkdir {}", path("users"))), 0);
        user.number(&format!("open 1 {} 0", path("users/f")));
        assert_eq!(user.number("write 1 10 97"), 10);
        assert_eq!(fs::metadata(path("users/f")).unwrap().uid(), 1234);
        let report = user.report();
        assert!(!is_by_range(&report) && counts(&report)["write"].0 == 1, "{report}");
    }
    let report = one.report();
    assert!(is_by_range(&report), "{report}");
    let counted = counts(&report);
    for call in ["write", "fsync", "mkdir", "rename", "rmdir", "unlink"] {
        assert!(counted[call].0 > 0, "{call} was not carried out in the range: {report}");
    }
    other.end();
    rig.umount();
    rig.fsck().expect("it is clean");
}

#[test]
fn who_dies_in_the_middle_loses_nothing_durable_and_nobody_hangs() {
    protections().into_iter().for_each(survives_who_dies);
}

fn survives_who_dies(protection: Protection) {
    let rig = Rig::new("256M");
    mount(&rig, protection);
    let path = |name: &str| rig.on_mount(name).display().to_string();
    let mut one = Agent::start(&rig);
    one.number(&format!("open 1 {} 0", path("durable")));
    assert_eq!((one.number("write 1 100 97"), one.number("sync 1")), (100, 0));
    let is_there = || fs::read(path("durable")).is_ok_and(|read| read == [97; 100]);
    // Asked of one mount: between two looks by the path it may be detached, and the directory below is none.
    let serves = |name: &str| {
        fs::File::open(rig.mount_point()).is_ok_and(|mount| {
            let at = |name: &str| format!("/proc/self/fd/{}/{name}", mount.as_raw_fd());
            fs::read(at("durable")).is_ok_and(|read| read == [97; 100]) && fs::write(at(name), "x").is_ok()
        })
    };

    // A program that is killed may have been inside; then the range is made anew.
    let mut busy = Agent::start(&rig);
    busy.number(&format!("open 1 {} 0", path("busy")));
    busy.told("busy 1");
    rig::wait_until("it is at work", || fs::metadata(path("busy")).is_ok_and(|found| found.len() > 3000));
    busy.child.kill().expect("killed");
    busy.child.wait().expect("an end");
    // Who comes in now is let in when the killed one has been seen off, or when the range has been made anew.
    rig::wait_until("a program is let in and the mount serves", || {
        let mut next = Agent::start(&rig);
        let opened = next.number(&format!("open 1 {} 0", path("next")));
        opened >= 0 && next.number("write 1 10 98") == 10 && is_by_range(&next.report()) && serves("after")
    });

    // The range's process is killed: calls fail, and the daemon mounts the image again.
    let daemon = rig.daemon_pid();
    let mut two = Agent::start(&rig);
    two.number(&format!("open 1 {} 0", path("two")));
    assert_eq!(two.number("write 1 10 98"), 10);
    let core = range_process(daemon).to_string();
    assert!(Command::new("kill").args(["-KILL", &core]).status().expect("kill starts").success());
    rig::wait_until("calls fail", || two.number("pwrite 1 0 10 99") < 0);
    rig::wait_until("the mount serves", || serves("again"));
    let mut three = Agent::start(&rig);
    three.number(&format!("open 1 {} 0", path("three")));
    assert_eq!((three.number("write 1 10 98"), three.number("sync 1")), (10, 0));
    assert!(is_by_range(&three.report()));

    assert_ne!(range_process(daemon).to_string(), core, "the daemon has one child, which is another one");

    // The daemon is killed: calls fail, and another mount finds what was durable.
    let mut four = Agent::start(&rig);
    four.number(&format!("open 1 {} 0", path("four")));
    rig.kill_daemon();
    rig::wait_until("calls fail", || four.number("pwrite 1 0 10 99") < 0);
    for agent in [one, two, four] {
        agent.report();
    }
    mount(&rig, protection);
    assert!(is_there() && fs::read(path("three")).unwrap() == [98; 10]);
    rig.umount();
    rig.fsck().expect("it is clean");
}

#[test]
fn what_cannot_be_shared_is_said() {
    let rig = Rig::empty();
    core();
    amphi_ok(&["mkfs", &rig.image(), "--fs", "romefs", "--size", "128M"]);
    let mount = ["mount", &rig.image(), &rig.mount_point(), "-o"];
    fails_saying(&[&mount[..], &["shared=all"]].concat(), 1, &["shared=all", "keys"]);
    let said = ["romefs", "bytefs and augefs"];
    fails_saying(&[&mount[..], &["shared=unprotected"]].concat(), 1, &said);
    fails_saying(&["export", &rig.image(), &rig.mount_point(), "-o", "shared"], 1, &["no file system"]);
    if !can_mount() || keys_are_here() {
        println!("SKIPPED: the processor has protection keys, or nothing can be mounted");
        return;
    }
    // The daemon goes to the background, where nobody hears it.
    let mounted = rig::amphi(&[&mount[..], &["shared"]].concat());
    assert!(mounted.status.success(), "programs use the queue instead: {mounted:?}");
    assert!(rig::complaint(&mounted).contains("no protection keys"), "{mounted:?}");
    assert!(info(&rig)["doors"]["range"].is_null());
}
