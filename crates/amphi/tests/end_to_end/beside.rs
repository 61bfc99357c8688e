//! A program that is run twice and tells of each of its calls: on a file system of the kernel's and on ours.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::accelerated::library;
use crate::rig::{Rig, can_mount};
use crate::shared;

/// A directory on a file system of the kernel's.
pub fn on_a_kernels() -> TempDir {
    let memory = Path::new("/dev/shm");
    tempfile::tempdir_in(if memory.is_dir() { memory } else { Path::new("/tmp") }).unwrap()
}

/// What a program tells that is started by these words of `amphi`, or by itself, in a directory that is made
/// for it, with these arguments behind.
pub fn run(program: &str, start: Option<&[&str]>, directory: &Path, arguments: &[&str]) -> Vec<String> {
    fs::create_dir(directory).unwrap();
    let mut command = Command::new("timeout");
    command.arg("120");
    if let Some(words) = start {
        command.arg(env!("CARGO_BIN_EXE_amphi")).args(words);
    }
    let output = command.arg(program).arg(directory).args(arguments).output().unwrap();
    fs::remove_dir_all(directory).unwrap();
    told(&output)
}

/// A mount of a file system, with the library there; none where nothing can be mounted.
pub fn mounted(file_system: &str) -> Option<Rig> {
    can_mount().then(|| {
        library();
        let rig = Rig::of(file_system, "1G");
        rig.mount();
        rig
    })
}

/// The same of ByteFS in a range.
pub fn mounted_in_a_range() -> Option<Rig> {
    can_mount().then(|| {
        library();
        let rig = Rig::new("1G");
        shared::mount(&rig, amphi_front_shared::Protection::Nothing);
        rig
    })
}

/// The lines that it told, and how it ended.
pub fn told(output: &Output) -> Vec<String> {
    let said = String::from_utf8_lossy(&output.stdout);
    said.lines().map(str::to_owned).chain([output.status.to_string()]).collect()
}

/// That both say the same. Else where they part, and what replays it: the tests of `module` with the seed.
pub fn assert_same(expected: &[String], got: &[String], what: &str, module: &str, seed: u64) {
    let different = expected.iter().zip(got).position(|(expected, got)| expected != got);
    assert!(
        expected == got,
        "{what}, seed {seed}: the kernel's file system says\n{}\nand ours\n{}\nreplay with: \
         AMPHI_SEED={seed} cargo test -p amphi --test end_to_end {module}",
        around(expected, different),
        around(got, different),
    );
}

/// The lines up to the one where two files part.
fn around(lines: &[String], different: Option<usize>) -> String {
    let last = different.unwrap_or(lines.len()).min(lines.len().saturating_sub(1));
    lines[last.saturating_sub(8)..=last].join("\n")
}
