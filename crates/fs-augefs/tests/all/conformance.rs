//! AugeFS keeps what `vfs::FileSystem` promises, and answers random operations as the model does: with room,
//! with little host memory and small segments, across remounts, and with several tasks.

use amphi_conformance::random;
use amphi_fs_augefs::{AugeFs, FormatOptions, MountOptions};
use amphi_rt::Sim;
use amphi_ssd::Ssd;

use crate::small::{cramped, crash, fine, make, remount, roomy};

/// The paper's segments, in all sixteen domains.
fn make_roomy() -> AugeFs<Ssd> {
    make(&FormatOptions { meta_pages: Some(8192), ..FormatOptions::default() }, 512 << 20, roomy())
}

/// Small segments, so that there is always something to collect, and little host memory.
fn make_cramped() -> AugeFs<Ssd> {
    make(&FormatOptions { meta_pages: Some(4096), ..fine() }, 32 << 20, cramped())
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
fn keeps_the_promises_in_virtual_time() {
    Sim::new(1).run(|| amphi_conformance::check_all(make_roomy));
}

#[test]
fn random_operations_match_the_model() {
    for seed in 0..30 {
        random::run(make_roomy, seed, 1000);
        random::run(make_cramped, 100 + seed, 1000);
    }
}

#[test]
fn random_operations_match_the_model_across_remounts() {
    for seed in 200..230 {
        random::run_with_remounts(make_cramped, |fs| remount(fs, cramped()), seed, 1000, 50);
    }
}

/// A crash of the program, after which each domain rolls forward from a checkpoint that may be long ago.
#[test]
fn random_operations_match_the_model_across_crashes() {
    for seed in 300..330 {
        random::run_with_crashes(make_cramped, |fs| crash(fs, cramped()), seed, 1000, 50);
        random::run_with_crashes(make_roomy, |fs| crash(fs, roomy()), seed, 1000, 50);
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

amphi_conformance::one_tree_tests!("amphi-fs-augefs", 0..50, |_| make_cramped());
