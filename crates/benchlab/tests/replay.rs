//! A recorded trace, replayed: the same tree, every operation, on each file system; and the same digits each
//! time.

use std::sync::Arc;

use amphi_benchlab::experiment::System;
use amphi_benchlab::experiment::replay::{self, Settings};
use amphi_benchlab::files::{HostCosts, LibraryFiles};
use amphi_benchlab::workload::{self, Plan, Run};
use amphi_fs_bytefs::{ByteFs, FormatOptions, MountOptions};
use amphi_model::Model;
use amphi_rt::sync::Mutex;
use amphi_ssd::{Profile, Ssd};
use amphi_trace::recording::{Recording, Sink};
use amphi_trace::{Operation, Trace};
use amphi_vfs::{FileSystem, FileType, Ino, Name};

/// What a mail server of one thread did on a file system, with files that were there before and some
/// operations that no workload has; and the tree it left.
fn recorded() -> (Trace, Vec<String>) {
    let fs = Arc::new(Model::new());
    let personality = workload::preset("varmail", &[]).unwrap().scaled(0.0001).with_threads(1);
    let run = Run { operations: Some(600), ..Run::default() };
    let plan = Plan::new(&workload::Personality { run, ..personality }).unwrap();
    let settings = workload::Settings { seed: 7 };
    let before = LibraryFiles::new(Arc::clone(&fs), HostCosts::default());
    let prepared = workload::prepare(&before, &plan, settings).unwrap();
    drop(before);
    let text = Arc::new(Mutex::new(String::new()));
    let kept = Arc::clone(&text);
    let sink: Sink = Box::new(move |line| *kept.lock() += &format!("{line}\n"));
    let recording = Arc::new(Recording::begin(Arc::clone(&fs), sink).unwrap());
    let files = LibraryFiles::new(Arc::clone(&recording), HostCosts::default());
    workload::run(&files, &prepared, &plan, settings, &|| {}).unwrap();
    for (number, line) in (0..).zip([
        "mkdir d",
        "create d/a",
        "write d/a 5 3000",
        "link d/a d/b",
        "symlink a d/s",
        "chmod d/a 600",
    ]) {
        line.parse::<Operation>().unwrap().apply(&*recording, number).unwrap();
    }
    let trace = text.lock().parse().unwrap();
    (trace, tree(&*fs))
}

/// Every name of a file system with what is there: type, links, size, permissions.
fn tree(fs: &dyn FileSystem) -> Vec<String> {
    let mut lines = Vec::new();
    let mut left = vec![(Ino::ROOT, String::new())];
    while let Some((dir, prefix)) = left.pop() {
        let mut names = Vec::new();
        fs.readdir(dir, 0, &mut |entry| {
            names.push(entry.name.to_vec());
            true
        })
        .unwrap();
        for name in names.into_iter().filter(|name| name != b"." && name != b"..") {
            let attr = fs.lookup(dir, Name::new(&name).unwrap()).unwrap().attr;
            fs.forget(attr.ino, 1);
            let path = format!("{prefix}{}", String::from_utf8_lossy(&name));
            let size = if attr.file_type == FileType::Directory { 0 } else { attr.size };
            lines.push(format!("{path} {:?} {} {size} {:o}", attr.file_type, attr.nlink, attr.mode));
            if attr.file_type == FileType::Directory {
                left.push((attr.ino, path + "/"));
            }
        }
    }
    lines.sort();
    lines
}

#[test]
fn a_replay_leaves_the_tree_that_was_recorded() {
    let (trace, expected) = recorded();
    assert!(trace.before.len() > 80 && trace.operations.len() > 200, "there is something to replay");
    let ssd = Arc::new(Ssd::in_memory(&Profile::named("free").unwrap(), 64 << 20));
    ByteFs::format(&*ssd, &FormatOptions::default()).unwrap();
    let fs = ByteFs::mount(Arc::clone(&ssd), MountOptions::default()).unwrap();
    let costs = HostCosts::default();
    amphi_benchlab::replay::run(&fs, &costs, &trace.before, 0).unwrap();
    let done =
        amphi_benchlab::replay::run(&fs, &costs, &trace.operations, trace.before.len() as u64).unwrap();
    assert_eq!(tree(&fs), expected);
    assert_eq!(done.outcome.operations, trace.operations.len() as u64);
    assert_eq!(done.not_offered, 0);
    let lines = |name: &str| trace.operations.iter().filter(|one| one.name() == name).count() as u64;
    for name in ["create", "write", "fsync", "unlink", "symlink"] {
        assert_eq!(done.outcome.latency(name).count, lines(name), "{name}");
    }
}

#[test]
fn a_replay_in_virtual_time_is_the_same_each_time_and_on_every_file_system_whole() {
    let (trace, _) = recorded();
    let settings = |system, real_time| Settings {
        system,
        profile: "mssd-pcie3".to_owned(),
        scale: 0.001,
        seed: 1,
        real_time,
    };
    for system in [System::Bytefs, System::Ext4] {
        let (result, not_offered) = replay::run(&trace, &settings(system, false)).unwrap();
        assert_eq!(result.operations + not_offered, trace.operations.len() as u64, "{system:?}");
        assert!(result.elapsed_ns > 0 && result.counters.bytes("write", |_| true) > result.bytes_written);
        assert_eq!(replay::run(&trace, &settings(system, false)).unwrap().0, result, "{system:?}");
    }
    let (real, _) = replay::run(&trace, &settings(System::Bytefs, true)).unwrap();
    assert_eq!(real.operations, trace.operations.len() as u64);
}

#[test]
fn what_cannot_be_replayed_is_told() {
    let trace: Trace = "create a\nunlink b".parse().unwrap();
    let error = amphi_benchlab::replay::run(&Model::new(), &HostCosts::default(), &trace.operations, 0);
    assert_eq!(
        error.unwrap_err().to_string(),
        "operation 2 of the trace, `unlink b`, failed: no such file or directory"
    );
}
