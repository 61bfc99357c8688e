//! RomeFS keeps what `vfs::FileSystem` promises, and answers random operations as the model does: with room,
//! with a memory zone that is always short, across remounts, and with several tasks.

use std::sync::Arc;

use amphi_conformance::random;
use amphi_fs_romefs::{Data, FormatOptions, MountOptions, RomeFs};
use amphi_rt::{Schedule, Sim};
use amphi_ssd::Ssd;
use amphi_vfs::{Cred, FileSystem, FileType, Ino, WriteMode};

use crate::small::{cramped, crash, make, name, remount, roomy};

/// Blocks of 4 KB, so that small writes go by blocks too.
fn make_fine() -> RomeFs<Ssd> {
    make(
        &FormatOptions { block_bytes: 4096, inodes: Some(12_000), ..FormatOptions::default() },
        16 << 20,
        roomy(),
    )
}

fn make_roomy() -> RomeFs<Ssd> {
    make(&FormatOptions { inodes: Some(12_000), ..FormatOptions::default() }, 16 << 20, roomy())
}

/// A memory zone that is always short.
fn make_cramped() -> RomeFs<Ssd> {
    let format = FormatOptions { inodes: Some(1000), ..FormatOptions::default() };
    make(&format, 2 << 20, cramped())
}

/// Writes that are durable later.
fn lazy(options: MountOptions) -> MountOptions {
    MountOptions { data: Data::Lazy, ..options }
}

fn make_lazy() -> RomeFs<Ssd> {
    make(&FormatOptions { inodes: Some(12_000), ..FormatOptions::default() }, 16 << 20, lazy(roomy()))
}

/// The same with so little host memory that writers write back themselves.
fn make_lazy_and_cramped() -> RomeFs<Ssd> {
    let format = FormatOptions { inodes: Some(1000), ..FormatOptions::default() };
    make(&format, 2 << 20, lazy(cramped()))
}

#[test]
fn keeps_the_promises() {
    amphi_conformance::check_all(make_roomy);
}

#[test]
fn keeps_the_promises_of_a_read_only_mount() {
    let read_only = || MountOptions { read_only: true, ..roomy() };
    amphi_conformance::check_read_only(make_roomy, |fs| remount(fs, read_only()));
}

#[test]
fn keeps_the_promises_with_blocks_of_4_kb() {
    amphi_conformance::check_all(make_fine);
}

#[test]
fn keeps_the_promises_with_buffered_writes() {
    amphi_conformance::check_all(make_lazy);
}

#[test]
fn random_operations_with_buffered_writes_match_the_model() {
    for seed in 300..330 {
        random::run(make_lazy, seed, 1000);
        random::run_with_remounts(make_lazy_and_cramped, |fs| remount(fs, lazy(cramped())), seed, 1000, 50);
    }
}

#[test]
fn concurrent_tasks_with_buffered_writes_match_their_models() {
    for seed in 0..50 {
        Sim::new(seed).run(move || random::run_tasks(make_lazy_and_cramped, seed, 100, 16));
    }
    for seed in 0..10 {
        random::run_tasks(make_lazy_and_cramped, seed, 150, 8);
    }
}

/// What one task buffers behind the end that another has begun to sync up to is no concern of that sync.
#[test]
fn a_file_is_synced_while_it_grows() {
    for seed in 0..20 {
        let schedule = Schedule::Random { per_mille: 150, delay_ns: 1000 };
        Sim::new(seed).schedule(schedule).run(|| {
            let grows = |name: &str| name == "appends_of_many_tasks_are_all_there";
            amphi_conformance::check_some(make_lazy, grows);
        });
    }
}

#[test]
fn keeps_the_promises_in_virtual_time() {
    Sim::new(1).run(|| amphi_conformance::check_all(make_roomy));
}

#[test]
fn random_operations_match_the_model() {
    for seed in 0..30 {
        random::run(make_roomy, seed, 1000);
        random::run(make_fine, 100 + seed, 1000);
    }
}

#[test]
fn random_operations_match_the_model_across_remounts() {
    for seed in 200..230 {
        random::run_with_remounts(make_cramped, |fs| remount(fs, cramped()), seed, 1000, 50);
    }
}

#[test]
fn random_operations_match_the_model_across_crashes() {
    for seed in 400..430 {
        random::run_with_crashes(make_cramped, |fs| crash(fs, cramped()), seed, 1000, 50);
        random::run_with_crashes(make_lazy_and_cramped, |fs| crash(fs, lazy(cramped())), seed, 1000, 50);
        random::run_with_crashes(make_fine, |fs| crash(fs, roomy()), seed, 1000, 50);
    }
}

/// The end of a file was where the buffered one left it, while the other one was on its way there.
#[test]
fn an_append_at_once_and_a_buffered_one_are_both_kept() {
    const BYTES: usize = 7000;
    for seed in 0..100 {
        let schedule = Schedule::Random { per_mille: 150, delay_ns: 1000 };
        Sim::new(seed).schedule(schedule).run(move || {
            let fs = Arc::new(make_lazy_and_cramped());
            let made = fs.create(Ino::ROOT, name("file"), FileType::Regular, 0o644, 0, &Cred::ROOT);
            let ino = made.expect("there is room").attr.ino;
            let appends = [true, false].map(|direct| {
                let fs = Arc::clone(&fs);
                amphi_rt::task::spawn("append", move || {
                    let how = WriteMode { append: true, direct, ..WriteMode::default() };
                    amphi_rt::task::yield_now();
                    fs.write(ino, 0, &[1 + u8::from(direct); BYTES], how, &Cred::ROOT)
                })
            });
            for append in appends {
                assert_eq!(append.join(), Ok(BYTES));
            }
            let mut bytes = vec![0; 3 * BYTES];
            assert_eq!(fs.read(ino, 0, &mut bytes, false), Ok(2 * BYTES), "seed {seed}");
            let runs: Vec<_> = bytes[..2 * BYTES].chunk_by(|a, b| a == b).map(<[u8]>::len).collect();
            assert_eq!(runs, [BYTES, BYTES], "seed {seed}");
        });
    }
}

#[test]
fn concurrent_tasks_match_their_models_in_virtual_time() {
    for seed in 0..50 {
        Sim::new(seed).run(move || random::run_tasks(make_cramped, seed, 100, 16));
    }
}

#[test]
fn concurrent_tasks_match_their_models_on_real_threads() {
    for seed in 0..20 {
        random::run_tasks(make_roomy, seed, 150, 8);
    }
}

amphi_conformance::one_tree_tests!("amphi-fs-romefs", 0..50, |_| make_cramped());
