//! The check beside the file system: what the file system makes is clean, and damaged images can be mounted
//! and used without a panic or a hang.
//!
//! `AMPHI_SEEDS=100000` runs more seeds, `AMPHI_SEED=n` replays one.

mod truth;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use amphi_fs_bytefs::format::{ROOT_INO, mode};
use amphi_fs_bytefs::{ByteFs, FormatOptions, MountOptions, fsck};
use amphi_memory_device::Memory;
use amphi_rt::sync::{ReceiveError, channel};
use amphi_vfs::{FileSystem, Ino, Name, RenameMode};

use crate::fsck_image::corrupt::{Random, corrupt};
use crate::fsck_image::usage::use_it;
use crate::fsck_image::{DOCS, Image, SUB, seeds};
use truth::{clean_and_true, tree_of};

fn options() -> MountOptions {
    MountOptions { write_back_interval_ns: 0, page_cache_pages: 64, ..MountOptions::default() }
}

#[test]
fn what_the_file_system_makes_is_clean() {
    let mut done = 0;
    for seed in seeds(150) {
        let device = Arc::new(Memory::new(vec![0; 2048 * 4096]));
        ByteFs::format(&*device, &FormatOptions::default()).expect("room for a file system");
        let random = &mut Random(seed);
        for round in 0..3 {
            let fs = ByteFs::mount(Arc::clone(&device), options()).expect("it mounts");
            done += use_it(&fs, random, 300);
            let used = fs.statfs().expect("counts");
            // Every other time as after a crash of the host, with writes left in its cache.
            let crash = random.below(2) == 0;
            if crash {
                drop(fs);
            } else {
                fs.unmount().expect("it unmounts");
            }
            let report = fsck::check(&*device, &mut |_| ()).expect("the device does not fail");
            let replay = format!("round {round}, replay with AMPHI_SEED={seed}");
            assert!(report.is_clean(), "{:?}: {replay}", report.findings);
            assert_eq!(report.cleanly_unmounted, !crash, "{replay}");
            if !crash {
                assert_eq!(report.orphans, 0, "{replay}");
                let inodes = report.files + report.directories + report.symlinks + report.special;
                assert_eq!(inodes, used.inodes - used.inodes_free, "{replay}");
            }
        }
    }
    println!("{done} operations succeeded");
}

/// Mounts a damaged image, uses it, unmounts it. Whether any of it works does not matter.
fn mount_and_use(image: Image, seed: u64) -> &'static str {
    let device = Arc::new(Memory::new(image.bytes));
    let Ok(fs) = ByteFs::mount(Arc::clone(&device), options()) else { return "did not mount" };
    let done = use_it(&fs, &mut Random(seed), 60);
    let unmounted = fs.unmount();
    // The check must cope with what use has made of the damage.
    fsck::check(&*device, &mut |_| ()).expect("the device does not fail");
    match (done, unmounted) {
        (0, _) => "mounted, nothing worked",
        (_, Ok(())) => "was used and unmounted",
        (_, Err(_)) => "was used, then failed",
    }
}

/// Runs `body` on a thread of its own and fails if it does not end.
fn within_20_s(what: &str, body: impl FnOnce() + Send + 'static) {
    let (sender, ended) = channel(16);
    let worker = amphi_rt::task::spawn("bounded", move || {
        body();
        sender.send(()).expect("somebody waits");
    });
    assert!(ended.receive_for(Duration::from_secs(120)) != Err(ReceiveError::Empty), "{what} hangs");
    worker.join();
}

#[test]
fn directories_that_hold_themselves_are_survived() {
    for (dir, holds) in [(SUB, SUB), (SUB, DOCS), (SUB, ROOT_INO), (DOCS, DOCS), (DOCS, ROOT_INO)] {
        for operation in 0..6 {
            let mut image = Image::sample();
            let name = if dir == SUB { "leaf" } else { "small-100" };
            image.edit_entry(dir, name, |header, _| {
                header.ino = holds.into();
                header.file_type = (mode::DIRECTORY >> 12) as u8;
            });
            let what = format!("operation {operation} on directory {dir} that holds {holds}");
            within_20_s(&what, move || {
                let fs = ByteFs::mount(Arc::new(image.device()), options()).expect("the root is sound");
                let (dir, holds) = (Ino(u64::from(dir)), Ino(u64::from(holds)));
                let name = Name::new(name.as_bytes()).expect("a name");
                let x = Name::new(b"x").expect("a name");
                let outcome = match operation {
                    0 => fs.rmdir(dir, name).map(drop),
                    1 => fs.unlink(dir, name).map(drop),
                    2 => fs.rename(dir, name, holds, x, RenameMode::Replace).map(drop),
                    3 => fs.rename(dir, name, Ino::ROOT, x, RenameMode::Replace).map(drop),
                    4 => fs.rename(Ino(u64::from(SUB)), name, dir, name, RenameMode::Exchange).map(drop),
                    _ => fs.lookup(dir, name).map(drop),
                };
                drop(outcome);
                use_it(&fs, &mut Random(operation), 60);
            });
        }
    }
}

#[test]
fn damaged_images_are_survived_and_never_called_clean() {
    let sample = Image::sample();
    let before = tree_of(&sample);
    let (sender, outcomes) = channel(16);
    let all = seeds(8_000);
    let (first, last) = (all.start, all.end);
    // A thread of its own, so that a hang is seen. Threads that hang cannot be ended, but the test can.
    let worker = amphi_rt::task::spawn("damaged", move || {
        for seed in all {
            let mut image = sample.clone();
            corrupt(&mut image, &mut Random(seed));
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                let answer = clean_and_true(&image, &before, seed);
                (mount_and_use(image, seed), answer)
            }));
            if sender.send((seed, outcome.ok())).is_err() {
                return;
            }
        }
    });
    let mut counts = std::collections::BTreeMap::new();
    let (mut panics, mut wrong) = (Vec::new(), Vec::new());
    for seed in first..last {
        match outcomes.receive_for(Duration::from_secs(120)) {
            Ok((seed, Some((outcome, answer)))) => {
                *counts.entry(outcome).or_insert(0) += 1;
                match answer {
                    None => *counts.entry("was found to be damaged").or_insert(0) += 1,
                    Some(Ok(())) => *counts.entry("was said to be clean, and is").or_insert(0) += 1,
                    Some(Err(why)) => wrong.push(format!("AMPHI_SEED={seed}: {why}")),
                }
            }
            Ok((seed, None)) => panics.push(seed),
            Err(ReceiveError::Empty) => panic!("a hang: replay with AMPHI_SEED={seed}"),
            Err(ReceiveError::Closed) => panic!("the worker ended at seed {seed}"),
        }
    }
    worker.join();
    println!("{counts:?}");
    let shown: Vec<&String> = wrong.iter().take(10).collect();
    assert!(wrong.is_empty(), "said to be clean {} times and is not: {shown:#?}", wrong.len());
    assert!(panics.is_empty(), "{} panics, seeds {panics:?}: replay one with AMPHI_SEED=", panics.len());
}
