//! `amphi.h` on a mount: a C program that is linked, beside programs that go through the kernel.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::rig::{Rig, amphi_ok, can_mount};

/// A C program of `front-files`, compiled in the rig's directory.
fn compiled(rig: &Rig, source: &str, name: &str) -> PathBuf {
    let room = concat!(env!("CARGO_MANIFEST_DIR"), "/../front-files");
    // Cargo puts the libraries of a test's dependencies beside it.
    let tests = std::env::current_exe().expect("a path");
    let libraries = tests.parent().expect("a directory").display().to_string();
    let program = PathBuf::from(rig.path(name));
    let status = Command::new("cc")
        .args(["-std=gnu99", "-pthread", &format!("-I{room}/include"), &format!("{room}/{source}"), "-o"])
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
    let every_call = compiled(&rig, "tests/calls.c", "calls");
    let example = compiled(&rig, "examples/files.c", "files");
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
