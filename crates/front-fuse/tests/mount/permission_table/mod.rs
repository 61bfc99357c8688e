//! Every operation by everybody on every kind of file and directory: on ext4, on a mount of ours, and through
//! `vfs::Checked` as a library. All three must permit, refuse (with the same error) and leave behind the
//! same.
//!
//! ext4 is a loop mount made here, so this needs root; what is missing is said and the test passes.
//! `AMPHI_TABLE=all` prints the counts by operation.

mod cases;
mod kernel;
mod library;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use amphi_model::Model;
use tempfile::TempDir;

use crate::mounted::{Mounted, is_root};
use cases::{Caller, Operation, Subject, callers, operations, subjects};
use kernel::InKernel;
use library::InLibrary;

/// What an operation came to: what the subject and what was made look like afterwards, or the error's number.
type Outcome = Result<String, i32>;

/// Something that carries a directory tree and performs operations on it.
trait Target {
    /// Makes the subject and what operations need beside it, from nothing.
    fn prepare(&mut self, subject: &Subject);

    /// Performs `operation` as `caller`, and tells what is there afterwards.
    fn perform(&mut self, subject: &Subject, caller: &Caller, operation: Operation) -> Outcome;
}

/// An ext4 in a file, mounted for as long as this lives.
struct Ext4 {
    directory: TempDir,
}

impl Ext4 {
    fn mount() -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let (image, mount) = (directory.path().join("ext4"), directory.path().join("mount"));
        std::fs::create_dir(&mount).unwrap();
        std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
        let ran = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
        let made = ran(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image));
        let mounted = made && ran(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&mount));
        if !mounted {
            println!("skipped: no ext4 can be mounted here");
            return None;
        }
        open_the_way(&directory);
        Some(Self { directory })
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        let mount = self.directory.path().join("mount");
        let status = Command::new("umount").arg("-l").arg(&mount).status();
        assert!(status.is_ok_and(|status| status.success()), "umount {}", mount.display());
    }
}

/// Everybody gets as far as what is in the directory.
fn open_the_way(directory: &TempDir) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn protected_hardlinks() -> bool {
    std::fs::read_to_string("/proc/sys/fs/protected_hardlinks").is_ok_and(|text| text.trim() == "1")
}

/// What was seen of one operation.
#[derive(Default)]
struct Count {
    permitted: usize,
    refused: usize,
}

#[test]
fn permissions_are_those_of_ext4() {
    if !is_root() {
        println!("skipped: only root can be everybody");
        return;
    }
    let Some(ext4) = Ext4::mount() else { return };
    let Some(mounted) = Mounted::new() else { return };
    let (reference, ours) = (ext4.directory.path().join("mount"), mounted.root().to_owned());
    // Credentials are a thread's own: this one takes those of every caller, and ends.
    let compared = std::thread::spawn(move || compare(&reference, &ours)).join();
    let (differences, counts) = compared.unwrap();
    let total: usize = counts.values().map(|count| count.permitted + count.refused).sum();
    if std::env::var_os("AMPHI_TABLE").is_some() {
        for (operation, count) in &counts {
            println!("{operation}: {} permitted, {} refused", count.permitted, count.refused);
        }
    }
    println!("{total} operations on ext4, on the mount and through the library");
    for (operation, count) in &counts {
        assert!(count.permitted > 0, "{operation} never succeeds on ext4: it decides nothing");
    }
    assert!(total > 20_000, "{total} operations");
    let shown: Vec<&String> = differences.iter().take(40).collect();
    assert!(differences.is_empty(), "{} of {total} differ from ext4:\n{shown:#?}", differences.len());
}

fn compare(reference: &Path, ours: &Path) -> (Vec<String>, BTreeMap<String, Count>) {
    rustix::process::umask(rustix::fs::Mode::empty());
    let mut ext4 = InKernel::at(reference);
    let mut mount = InKernel::at(ours);
    let mut library = InLibrary::on(Arc::new(Model::new()), protected_hardlinks());
    let mut differences = Vec::new();
    let mut counts: BTreeMap<String, Count> = BTreeMap::new();
    let callers = callers();
    for subject in subjects() {
        let mut fresh = false;
        for operation in operations(subject.directory) {
            for caller in &callers {
                if !fresh {
                    for target in [&mut ext4 as &mut dyn Target, &mut mount, &mut library] {
                        target.prepare(&subject);
                    }
                }
                let expected = ext4.perform(&subject, caller, operation);
                for (name, target) in [("mount", &mut mount as &mut dyn Target), ("library", &mut library)] {
                    let outcome = target.perform(&subject, caller, operation);
                    if outcome != expected {
                        differences.push(format!(
                            "{operation:?} by {} on {subject}: {name} {outcome:?}, ext4 {expected:?}",
                            caller.name
                        ));
                    }
                }
                let count = counts.entry(format!("{operation:?}")).or_default();
                // What failed has changed nothing, which the next outcomes would show.
                fresh = (expected.is_err() || !operation.changes()) && differences.is_empty();
                *(if expected.is_ok() { &mut count.permitted } else { &mut count.refused }) += 1;
            }
        }
    }
    (differences, counts)
}
