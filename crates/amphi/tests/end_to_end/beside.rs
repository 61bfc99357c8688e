//! A program that is run twice and tells of each of its calls: on a file system of the kernel's and on ours.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::accelerated::library;
use crate::rig::{Rig, amphi_ok, can_mount, seed};
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

/// A program that is held against the kernel's file systems, with as many seeds as one likes.
pub struct Held {
    /// Its source is the file of that name, its tests the module.
    pub name: &'static str,
    /// How it is compiled.
    pub flags: &'static [&'static str],
    /// Calls of one run.
    pub calls: &'static str,
    /// How it is started on a mount, and what it is told behind directory, seed and calls.
    pub ways: &'static [(Option<&'static [&'static str]>, &'static [&'static str])],
    /// Puts what it told in order.
    pub in_order: fn(Vec<String>) -> Vec<String>,
}

impl Held {
    fn on_rig(&self, rig: &Rig, what: &str, seeds: u64) {
        let program = rig.compiled(self.name, self.flags);
        let kernels = on_a_kernels();
        let first = seed();
        for seed in first..first + seeds {
            for (start, told) in self.ways {
                let number = seed.to_string();
                let arguments = [&[&*number, self.calls], *told].concat();
                let lines = |start, directory: &Path| {
                    (self.in_order)(run(&program, start, &directory.join("d"), &arguments))
                };
                let expected = lines(None, kernels.path());
                let got = lines(*start, &rig.on_mount(""));
                let what = format!("{what}, {start:?} {told:?}");
                assert_same(&expected, &got, &what, &format!("{}::", self.name), seed);
            }
        }
        rig.umount();
        amphi_ok(&["fsck", &rig.image()]);
    }

    /// Compares a mount of a file system.
    pub fn on(&self, file_system: &str, seeds: u64) {
        if let Some(rig) = mounted(file_system) {
            self.on_rig(&rig, file_system, seeds);
        }
    }

    /// Compares ByteFS in a range.
    pub fn in_a_range(&self, seeds: u64) {
        if let Some(rig) = mounted_in_a_range() {
            self.on_rig(&rig, "bytefs in a range", seeds);
        }
    }
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
