//! `amphi.h` on a mount: a C program that is linked, beside programs that go through the kernel.

use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use amphifiles::Files;

use crate::beside::{assert_same, on_a_kernels, told};
use crate::rig::{Rig, amphi_ok, can_mount, seed};

const ROOM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../front-files");

/// A C program, linked to the library and compiled in the rig's directory.
fn compiled(rig: &Rig, source: &str, name: &str) -> PathBuf {
    // Cargo puts the libraries of a test's dependencies beside it.
    let tests = std::env::current_exe().expect("a path");
    let libraries = tests.parent().expect("a directory").display().to_string();
    let program = PathBuf::from(rig.path(name));
    let status = Command::new("cc")
        .args(["-std=gnu99", "-pthread", "-DAMPHI", &format!("-I{ROOM}/include"), source, "-o"])
        .arg(&program)
        .args([format!("-L{libraries}"), format!("-Wl,-rpath,{libraries}"), "-lamphifiles".to_owned()])
        .status()
        .expect("a C compiler");
    assert!(status.success(), "cc: {status}");
    program
}

fn said(command: &mut Command) -> String {
    let output = command.output().expect("runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn linked_programs_and_the_kernel_see_one_file_system() {
    if !can_mount() {
        return;
    }
    let rig = Rig::new("256M");
    let every_call = compiled(&rig, &format!("{ROOM}/tests/calls.c"), "calls");
    let example = compiled(&rig, &format!("{ROOM}/examples/files.c"), "files");
    rig.mount();
    assert_eq!(said(Command::new(&every_call).arg(rig.mount_point())), "all\n");
    assert_eq!(said(Command::new(&example).args([&rig.mount_point(), "one"])), "one\n");
    assert_eq!(fs::read(rig.on_mount("log")).expect("the kernel sees it"), b"one\n");
    fs::write(rig.on_mount("log"), "two\n").expect("written through the kernel");
    assert_eq!(said(Command::new(&example).args([&rig.mount_point(), "three"])), "two\nthree\n");
    let left = fs::read_dir(rig.mount_point()).expect("listed").count();
    assert_eq!(left, 1, "files in the root");

    let image = rig.image();
    let busy = Command::new(&example).args([&image, "four"]).output().expect("runs");
    let complaint = String::from_utf8_lossy(&busy.stderr);
    assert!(busy.status.code() == Some(1) && complaint.contains("in use"), "{complaint}");
    fs::create_dir(rig.on_mount("d")).expect("made");
    let below = Command::new(&example).arg(rig.on_mount("d")).arg("five").output().expect("runs");
    let complaint = String::from_utf8_lossy(&below.stderr);
    assert!(complaint.contains("root directory"), "{complaint}");

    rig.umount();
    assert_eq!(said(Command::new(&example).args([&image, "six"])), "two\nthree\nsix\n");
    amphi_ok(&["fsck", &image]);
    rig.mount();
    assert_eq!(fs::read(rig.on_mount("log")).expect("read"), b"two\nthree\nsix\n");
}

/// Whoever has a directory open by the kernel finds it where a linked program has moved it.
#[test]
fn a_directory_moved_by_amphi_h_is_found_by_the_kernel() {
    if !can_mount() {
        return;
    }
    let rig = Rig::new("64M");
    rig.mount();
    fs::create_dir(rig.on_mount("from")).expect("made");
    let held = fs::File::open(rig.on_mount("from")).expect("opened");
    let files = Files::mounted(rig.mount_point()).expect("connected");
    files.rename("/from", "/to").expect("moved by a command");
    let name = fs::read_link(format!("/proc/self/fd/{}", held.as_raw_fd())).expect("a name");
    assert_eq!(name, Path::new(&rig.on_mount("to")));
    fs::rename(rig.on_mount("to"), rig.on_mount("further")).expect("moved by the kernel");
}

/// A program of random calls answers as one that makes the same calls of POSIX on a file system of the
/// kernel's: on an image that it has to itself, and on a mount.
#[test]
fn calls_by_amphi_h_answer_as_in_the_kernel() {
    if !can_mount() {
        return;
    }
    let rig = Rig::empty();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/end_to_end/linked.c");
    let linked = compiled(&rig, source, "by-library");
    let plain = rig.compiled("linked", &["-O1"]);
    let run = |program: &Path, place: &str, seed: u64| {
        let mut command = Command::new("timeout");
        told(&command.arg("60").arg(program).args([place, &seed.to_string(), "2000"]).output().expect("runs"))
    };
    let first = seed();
    for (seed, is_mounted) in (first..first + 6).zip([false, true].into_iter().cycle()) {
        let kernels = on_a_kernels();
        let expected = run(Path::new(&plain), kernels.path().to_str().expect("a path"), seed);
        let image = rig.image();
        amphi_ok(&["mkfs", &image, "--size", "256M"]);
        let got = if is_mounted {
            rig.mount();
            let got = run(&linked, &rig.mount_point(), seed);
            rig.umount();
            got
        } else {
            run(&linked, &image, seed)
        };
        let what = format!("amphi.h, mounted {is_mounted}");
        assert_same(&expected, &got, &what, "linked::", seed);
        amphi_ok(&["fsck", &image]);
        fs::remove_file(&image).expect("removed");
    }
}
