//! Sixteen tasks that get in each other's way in one small tree, in virtual time, interleaved as the seed
//! decides; `data=ordered` and `data=journal` in turn.
//!
//! 100 seeds, or 1,000 with `AMPHI_TEST_LONG=1`. `AMPHI_SEED=n cargo test -p amphi-fs-ext4like --test
//! concurrent NAME` replays one.

use std::sync::Arc;

use amphi_conformance::one_tree;
use amphi_fs_ext4like::{DataMode, Ext4Like, FormatOptions, MountOptions, fsck};
use amphi_rt::task;
use amphi_ssd::{Firmware, OpenOptions, Profile, Ssd};
use amphi_vfs::{Cred, FileSystem, FileType, Ino, Name, WriteMode};

fn for_all_seeds(name: &str, body: fn(u64)) {
    let seeds = if std::env::var_os("AMPHI_TEST_LONG").is_some() { 1_000 } else { 100 };
    one_tree::for_seeds(0..seeds, &format!("cargo test -p amphi-fs-ext4like concurrent::{name}"), body);
}

/// With so little memory that pages, metadata and inodes come and go all the time.
fn options(seed: u64) -> MountOptions {
    MountOptions {
        data: if seed.is_multiple_of(2) { DataMode::Ordered } else { DataMode::Journal },
        page_cache_pages: 16,
        buffer_blocks: 8,
        inode_cache: 3,
        commit_interval_ns: 1_000_000,
        ..MountOptions::default()
    }
}

/// Formats and mounts.
fn mounted(seed: u64) -> Arc<Ext4Like<Ssd>> {
    let mut profile = Profile::named("mssd-pcie3").expect("a built-in profile");
    profile.firmware.kind = Firmware::PageCache;
    let open = OpenOptions { free: true, ..OpenOptions::default() };
    let device = Arc::new(Ssd::try_in_memory(&profile, 64 << 20, &open).expect("64 MB in memory"));
    let format = FormatOptions { inodes: Some(20_480), ..FormatOptions::default() };
    Ext4Like::format(&*device, &format).expect("a 64 MB device can be formatted");
    Arc::new(Ext4Like::mount(device, options(seed)).expect("it can be mounted"))
}

/// Unmounts once all tasks have ended, and returns the device.
fn unmounted(fs: Arc<Ext4Like<Ssd>>) -> Arc<Ssd> {
    let fs = Arc::into_inner(fs).expect("every task has ended");
    let device = Arc::clone(fs.device());
    fs.unmount().expect("it can be unmounted");
    device
}

/// Formats, mounts, runs `body`, unmounts and checks.
fn checked(seed: u64, body: impl Fn(&Arc<Ext4Like<Ssd>>)) {
    let fs = mounted(seed);
    body(&fs);
    let report = fsck::check(&unmounted(fs)).expect("it can be checked");
    assert!(report.findings.is_empty(), "seed {seed}: {:#?}", report.findings);
}

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
        let file = one_tree::with_attribute(&*fs);
        let fs = Arc::new(Ext4Like::mount(unmounted(fs), options(seed)).expect("it can be mounted"));
        one_tree::attribute_of_what_goes(&fs, file);
    });
}

#[test]
fn nobody_removes_what_nobody_may_remove_any_more() {
    for_all_seeds("nobody_removes_what_nobody_may_remove_any_more", |seed| {
        checked(seed, one_tree::removal_without_permission);
    });
}

#[test]
fn a_read_sees_each_write_whole_or_not_at_all() {
    const BYTES: usize = 64 * 4096;
    for_all_seeds("a_read_sees_each_write_whole_or_not_at_all", |seed| {
        checked(seed, |fs| {
            let name = Name::new(b"f").expect("a plain name");
            let made = fs.create(Ino::ROOT, name, FileType::Regular, 0o644, 0, &Cred::ROOT);
            let ino = made.expect("there is room").attr.ino;
            let write = move |fs: &Ext4Like<Ssd>, byte: u8| {
                let written = fs.write(ino, 0, &[byte; BYTES], WriteMode::default(), &Cred::ROOT);
                assert_eq!(written, Ok(BYTES));
            };
            write(fs, 0);
            let writer = {
                let fs = Arc::clone(fs);
                task::spawn("writer", move || (1..8).for_each(|byte| write(&fs, byte)))
            };
            for _ in 0..8 {
                let mut bytes = vec![0xEE; BYTES];
                assert_eq!(fs.read(ino, 0, &mut bytes, false), Ok(BYTES));
                assert!(bytes.iter().all(|byte| *byte == bytes[0]), "parts of two writes, seed {seed}");
            }
            writer.join();
            fs.forget(ino, 1);
        });
    });
}
