//! The header and the example of the C interface: compiled by cc, and run over a crash.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use amphi_fs_ext4like::{Ext4Like, FormatOptions};
use amphi_ssd::{Firmware, OpenOptions, Profile, Ssd};

fn image(directory: &Path) -> PathBuf {
    let image = directory.join("ssd.img");
    let mut profile = Profile::named("2b-ssd").expect("built in");
    profile.firmware.kind = Firmware::BaBuffer;
    Ssd::create(&image, &profile, 64 << 20).expect("makes an image");
    let device = Ssd::open(&image, &OpenOptions { free: true, ..OpenOptions::default() }).expect("opens");
    Ext4Like::format(&device, &FormatOptions::default()).expect("makes a file system");
    image
}

/// The example, compiled against the header and the library.
fn example(directory: &Path) -> PathBuf {
    let tests = std::env::current_exe().expect("has a path");
    let libraries = tests.parent().expect("is in a directory");
    let program = directory.join("log");
    let status = Command::new("cc")
        .args(["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-Iinclude", "examples/log.c", "-o"])
        .arg(&program)
        .arg(format!("-L{}", libraries.display()))
        .arg(format!("-Wl,-rpath,{}", libraries.display()))
        .arg("-lamphiwal")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .expect("cc runs");
    assert!(status.success(), "cc: {status}");
    program
}

fn run(program: &Path, words: &[&str]) -> Output {
    Command::new(program).args(words).output().expect("runs")
}

fn shown(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).expect("text")
}

#[test]
fn the_example_in_c_appends_and_finds_its_records_after_a_crash() {
    let directory = tempfile::tempdir().expect("a directory");
    let (program, image) = (example(directory.path()), image(directory.path()));
    let image = image.to_str().expect("text");
    assert_eq!(shown(&run(&program, &[image, "wal", "crash"])), "durable: 2\n");
    let first = "1: set a = 1\n2: set b = 2\n";
    assert_eq!(shown(&run(&program, &[image, "wal"])), format!("{first}durable: 4\n"));
    let then = format!("{first}3: set a = 1\n4: set b = 2\ndurable: 6\n");
    assert_eq!(shown(&run(&program, &[image, "/wal", "crash"])), then);
}

#[test]
fn what_cannot_be_opened_is_said_in_a_sentence() {
    let directory = tempfile::tempdir().expect("a directory");
    let (program, image) = (example(directory.path()), image(directory.path()));
    let image = image.to_str().expect("text");
    for words in [["/no/such.img", "wal"], [image, "no/such"], [image, "/"], [image, ""]] {
        let output = run(&program, &words);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {output:?}");
        assert!(output.stderr.len() > 10, "{words:?}: {output:?}");
    }
    assert_eq!(shown(&run(&program, &[image, "wal"])), "durable: 2\n", "the image is as it was");
}
