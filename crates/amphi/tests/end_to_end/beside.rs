//! A program that is run twice and tells of each of its calls: on a file system of the kernel's and on ours.

use std::path::Path;
use std::process::Output;

use tempfile::TempDir;

/// A directory on a file system of the kernel's.
pub fn on_a_kernels() -> TempDir {
    let memory = Path::new("/dev/shm");
    tempfile::tempdir_in(if memory.is_dir() { memory } else { Path::new("/tmp") }).unwrap()
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
        "{what}, seed {seed}: the kernel's file system says\n{}\nand ours\n{}\nreplay with: AMPHI_SEED={seed} cargo \
         test -p amphi --test end_to_end {module}",
        around(expected, different),
        around(got, different),
    );
}

/// The lines up to the one where two files part.
fn around(lines: &[String], different: Option<usize>) -> String {
    let last = different.unwrap_or(lines.len()).min(lines.len().saturating_sub(1));
    lines[last.saturating_sub(8)..=last].join("\n")
}
