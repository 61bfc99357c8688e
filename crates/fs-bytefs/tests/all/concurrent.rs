//! Sixteen tasks at the same time in virtual time, interleaved as the seed decides: each with names of its
//! own against a model of its own, and all of them in one small tree, where they get in each other's way
//! ([`one_tree`]); `data=ordered` and `data=journal` in turn.
//!
//! 200 seeds, or 10,000 with `AMPHI_TEST_LONG=1` (`cargo xtask test --long`).
//! `AMPHI_SEED=n cargo test -p amphi-fs-bytefs concurrent::NAME` replays one.

use std::sync::Arc;

use amphi_conformance::{one_tree, random};
use amphi_fs_bytefs::{ByteFs, DataMode, FormatOptions, MountOptions, fsck};

use amphi_memory_device::Memory;

/// So little memory that pages and inodes come and go all the time.
fn options(seed: u64) -> MountOptions {
    let data = if seed.is_multiple_of(2) { DataMode::Ordered } else { DataMode::Journal };
    MountOptions {
        data,
        page_cache_pages: 16,
        inode_cache: 4,
        write_back_interval_ns: 1_000_000_000,
        ..MountOptions::default()
    }
}

fn mounted(seed: u64) -> ByteFs<Memory> {
    let device = Arc::new(Memory::new(vec![0; 16 << 20]));
    let format = FormatOptions { inodes: Some(2048), ..FormatOptions::default() };
    ByteFs::format(&*device, &format).expect("it can be formatted");
    ByteFs::mount(device, options(seed)).expect("it can be mounted")
}

fn for_all_seeds(name: &str, body: fn(u64)) {
    let seeds = if std::env::var_os("AMPHI_TEST_LONG").is_some() { 10_000 } else { 200 };
    one_tree::for_seeds(0..seeds, &format!("cargo test -p amphi-fs-bytefs concurrent::{name}"), body);
}

/// Runs `body`, unmounts and checks.
fn checked(seed: u64, body: impl Fn(&Arc<ByteFs<Memory>>)) {
    let fs = Arc::new(mounted(seed));
    body(&fs);
    let fs = Arc::into_inner(fs).expect("every task has ended");
    let device = Arc::clone(fs.device());
    fs.unmount().expect("it can be unmounted");
    let report = fsck::check(&*device, &mut |_| {}).expect("it can be checked");
    assert!(report.findings.is_empty(), "seed {seed}: {:#?}", report.findings);
}

#[test]
fn tasks_with_names_of_their_own_match_their_models() {
    for_all_seeds("tasks_with_names_of_their_own_match_their_models", |seed| {
        random::run_tasks(|| mounted(seed), seed, 60, 16);
    });
}

/// Found by seed 151 of the test below it.
#[test]
fn a_rename_across_one_within_and_a_lookup_do_not_wait_in_a_circle() {
    for_all_seeds("a_rename_across_one_within_and_a_lookup_do_not_wait_in_a_circle", |seed| {
        checked(seed, one_tree::circle);
    });
}

#[test]
fn tasks_in_one_small_tree_leave_it_a_tree() {
    for_all_seeds("tasks_in_one_small_tree_leave_it_a_tree", |seed| {
        checked(seed, |fs| one_tree::meddle_together(fs, seed));
    });
}

#[test]
fn crossing_moves_lose_no_directory() {
    for_all_seeds("crossing_moves_lose_no_directory", |seed| {
        checked(seed, |fs| one_tree::crossing_moves(fs, seed));
    });
}

#[test]
fn a_file_that_goes_keeps_its_attributes_to_the_end() {
    for_all_seeds("a_file_that_goes_keeps_its_attributes_to_the_end", |seed| {
        let fs = mounted(seed);
        let file = one_tree::with_attribute(&fs);
        let device = Arc::clone(fs.device());
        fs.unmount().expect("it can be unmounted");
        let fs = Arc::new(ByteFs::mount(device, options(seed)).expect("it can be mounted"));
        one_tree::attribute_of_what_goes(&fs, file);
    });
}

#[test]
fn nobody_removes_what_nobody_may_remove_any_more() {
    for_all_seeds("nobody_removes_what_nobody_may_remove_any_more", |seed| {
        checked(seed, one_tree::removal_without_permission);
    });
}
