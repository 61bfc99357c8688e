//! `amphi run`: what a program opens by the queue alone, and how it becomes the kernel's when
//! that is needed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use rustix::fs::OFlags;

use crate::accelerated::{Agent, library};
use crate::rig::{self, Rig, amphi_ok, can_mount};

fn rig() -> Option<(Rig, Agent)> {
    if !can_mount() {
        return None;
    }
    let rig = Rig::new("256M");
    rig.mount();
    let agent = Agent::start_with(&rig, &[]);
    Some((rig, agent))
}

/// How many inodes are taken.
fn inodes(rig: &Rig) -> u64 {
    let stat = rustix::fs::statvfs(rig.mount_point().as_str()).unwrap();
    stat.f_files - stat.f_ffree
}

fn leave(rig: &Rig) {
    rig.umount();
    amphi_ok(&["fsck", &rig.image()]);
}

#[test]
fn a_file_is_made_written_and_closed_past_the_kernel() {
    let Some((rig, mut agent)) = rig() else { return };
    let path = rig.on_mount("f");
    agent.number(&format!("open 1 {} 0", path.display()));
    assert_eq!((agent.number("write 1 5000 97"), agent.number("seek 1")), (5000, 5000));
    assert_eq!((agent.number("size 1"), agent.number("sync 1")), (5000, 0));
    let number = agent.number("number 1");
    let known = fs::read_link(format!("/proc/{}/fd/{number}", agent.child.id())).unwrap();
    assert!(!known.starts_with(rig.mount_point()), "the kernel has it open: {}", known.display());
    assert_eq!(fs::read(&path).unwrap(), [b'a'; 5000]);
    assert_eq!(agent.number("stray 1"), 1, "a call past the library did something");
    assert_eq!(fs::metadata(&path).unwrap().len(), 5000);
    assert_eq!(agent.number("close 1"), 0);
    let counts = agent.end();
    for call in ["open", "write", "fsync"] {
        assert!(counts[call].0 > 0 && counts[call].1 == 0, "{call}: {counts:?}");
    }
    assert!(!counts.contains_key("real"), "{counts:?}");
    leave(&rig);
}

/// Named as in `needs` of the agent: what is needed, and `u` or `r` if the file has lost or changed its name
/// before.
#[test]
fn whatever_needs_a_descriptor_of_the_kernels_gets_one() {
    let Some((rig, mut agent)) = rig() else { return };
    let path = rig.on_mount("f").display().to_string();
    let inodes_before = inodes(&rig);
    let check = |agent: &mut Agent, what, name| {
        let asked = format!("needs {path} {what}{name}");
        assert_eq!(agent.number(&asked), 0, "{asked}");
    };
    for what in ["m", "d", "f", "p", "s", "w", "o", "c", "x", "g"] {
        for name in ["", "u", "r"] {
            check(&mut agent, what, name);
        }
    }
    let counts = agent.end();
    assert!(counts["real"].1 >= 30, "{counts:?}");
    // After these a process has none any more, of any file or of this one.
    for what in ["l", "e"] {
        for name in ["", "u", "r"] {
            let mut agent = Agent::start_with(&rig, &[]);
            check(&mut agent, what, name);
            let counts = agent.end();
            assert!(counts["real"].1 >= 1, "{what}{name}: {counts:?}");
        }
    }
    assert!(!rig.on_mount(".amphi-pass-0").exists());
    fs::remove_file(rig.on_mount("f-moved")).unwrap();
    rig::wait_until("files without names are gone", || inodes(&rig) == inodes_before);
    leave(&rig);
}

/// What makes its system calls itself passes descriptors to the kernel where no library sees it.
#[test]
fn who_may_pass_descriptors_unseen_has_real_ones() {
    let Some((rig, _)) = rig() else { return };
    let source = rig.path("nothing.c");
    fs::write(&source, "").unwrap();
    let loads = |name: &str| {
        let object = rig.path(name);
        let made = Command::new("cc").args(["-shared", "-fPIC", "-o", &object, &source]).status();
        assert!(made.expect("a C compiler").success());
        format!("load {object}")
    };
    let asked = [
        (loads("libother.so"), false),
        (loads("liburing.so.2"), true),
        (loads("libaio.so.1"), true),
        ("ring 1".to_owned(), true),
    ];
    for (what, is_real) in asked {
        let mut agent = Agent::start_with(&rig, &[]);
        let path = |slot: u32| rig.on_mount(&format!("f{slot}"));
        let mut open = |slot: u32| agent.number(&format!("open {slot} {} 0", path(slot).display()));
        let before = open(1);
        assert_eq!(agent.number(&what), 0, "{what}");
        let after = agent.number(&format!("open 2 {} 0", path(2).display()));
        for (slot, number) in [(1, before), (2, after)] {
            let known = fs::read_link(format!("/proc/{}/fd/{number}", agent.child.id())).unwrap();
            assert_eq!(known == path(slot), is_real, "{what}: {}", known.display());
            assert_eq!(agent.number(&format!("write {slot} 9 97")), 9, "{what}");
            fs::remove_file(path(slot)).unwrap();
        }
        agent.end();
    }
    leave(&rig);
}

#[test]
fn calls_by_name_do_what_they_do_elsewhere() {
    let Some((rig, mut agent)) = rig() else { return };
    assert_eq!(agent.number(&format!("byname {}", rig.on_mount("f").display())), 0);
    let counts = agent.end();
    for call in ["stat", "access", "chmod", "symlink", "readlink", "xattr", "fallocate", "lseek"] {
        assert!(counts[call].0 > 0 && counts[call].1 == 0, "{call}: {counts:?}");
    }
    leave(&rig);
}

#[test]
fn calls_by_name_do_so_with_real_descriptors_too() {
    if !can_mount() {
        return;
    }
    let rig = Rig::new("256M");
    rig.mount();
    let mut agent = Agent::start(&rig);
    assert_eq!(agent.number(&format!("byname {}", rig.on_mount("f").display())), 0);
    assert!(agent.end()["stat"].0 > 0);
    leave(&rig);
}

/// Signals in the middle of calls, more threads than lanes, a child that has its parent's memory, a program
/// that closes what it does not know.
#[test]
fn what_comes_in_between_is_not_mixed_up() {
    if !can_mount() {
        return;
    }
    let rig = Rig::new("256M");
    rig.mount();
    for options in [&["--real-descriptors"][..], &[]] {
        let mut agent = Agent::start_with(&rig, options);
        let path = |name: &str| rig.on_mount(name).display().to_string();
        for (name, flags) in [("signals", 0), ("appends", 0o2000)] {
            agent.number(&format!("open 1 {} {flags}", path(name)));
            let written = agent.number("signalled 1");
            let text = fs::read_to_string(path(name)).unwrap();
            assert_eq!(text.len() as i64, written, "{options:?}, {name}");
            let torn = text.lines().find(|line| !["program", "handler"].contains(line));
            assert_eq!(torn, None, "{options:?}, {name}");
            fs::remove_file(path(name)).unwrap();
        }
        assert_eq!(agent.number(&format!("crowd {}", path("crowd"))), 0, "{options:?}");
        assert_eq!(fs::metadata(path("crowd")).unwrap().size(), 48 * 12, "{options:?}");
        assert_eq!(agent.number(&format!("vforked {}", path("vforked"))), 1, "{options:?}");
        agent.number(&format!("open 2 {} 0", path("closed")));
        assert_eq!(agent.number("closerange 3"), 0);
        assert_eq!(agent.number("write 2 1 97"), -9, "EBADF: {options:?}");
        agent.number(&format!("open 2 {} 0", path("closed")));
        assert_eq!(agent.number("write 2 1 97"), 1, "{options:?}");
        let counts = agent.end();
        assert!(counts["write"].0 > 100, "{options:?}: {counts:?}");
        for name in ["crowd", "vforked", "closed"] {
            fs::remove_file(path(name)).unwrap();
        }
    }
    leave(&rig);
}

#[test]
fn a_killed_daemon_is_an_error_for_placeholders_too() {
    let Some((rig, mut agent)) = rig() else { return };
    agent.number(&format!("open 1 {} 0", rig.on_mount("f").display()));
    assert_eq!((agent.number("pwrite 1 0 100 66"), agent.number("sync 1")), (100, 0));
    rig.kill_daemon();
    for call in ["pwrite 1 0 100 67", "sync 1", "size 1", "truncate 1 0"] {
        let refused = agent.number(call);
        assert!([-107, -5, -103].contains(&refused), "{call}: a dead mount answered {refused}");
    }
    assert_eq!(agent.number("close 1"), 0);
    agent.end();
    rig.mount();
    assert_eq!(fs::read(rig.on_mount("f")).unwrap(), [66; 100]);
    rig.umount();
}

/// A program waited for itself: a handler came while the library made what it makes once, and asked for it.
#[test]
fn a_signal_in_the_first_call_does_not_wait_for_itself() {
    if !can_mount() {
        return;
    }
    library();
    let rig = Rig::new("64M");
    let program = rig.compiled("interrupted", &["-O1", "-rdynamic"]);
    rig.mount();
    let (first, second) = (rig.on_mount("first"), rig.on_mount("second"));
    let run = ["120", env!("CARGO_BIN_EXE_amphi"), "run", "--", &program];
    let output = Command::new("timeout").args(run).args([&first, &second]).output().expect("timeout");
    assert!(output.status.success(), "{:?}: {}", output.status, rig::complaint(&output));
    assert_eq!((fs::read(&first).unwrap(), fs::read(&second).unwrap()), (b"made".into(), b"made".into()));
    rig.umount();
}

/// What closes at an `exec` stays a placeholder over one that fails, and goes on to append.
#[test]
fn what_appends_does_so_after_a_program_that_was_not_there() {
    let Some((rig, mut agent)) = rig() else { return };
    let path = rig.on_mount("f");
    let flags = OFlags::APPEND | OFlags::CLOEXEC;
    agent.number(&format!("open 1 {} {}", path.display(), flags.bits()));
    assert_eq!(agent.number("write 1 5000 97"), 5000);
    assert_eq!(agent.number(&format!("exec {}", rig.on_mount("none").display())), -2, "ENOENT");
    assert_eq!(agent.number("pwrite 1 0 100 98"), 100);
    assert_eq!(fs::read(&path).unwrap(), [vec![b'a'; 5000], vec![b'b'; 100]].concat());
    agent.end();
    leave(&rig);
}
