//! The ext4-like file system keeps what `vfs::FileSystem` promises, and answers random operations as the
//! model does: with room, under memory pressure, with data journaling, across remounts, and with several
//! tasks in virtual time. On page-cache firmware, which is what the baseline runs on.

use std::sync::Arc;

use amphi_conformance::random;
use amphi_fs_ext4like::{DataMode, Ext4Like, FormatOptions, MountOptions};
use amphi_memory_device::Memory;
use amphi_rt::Sim;
use amphi_ssd::{Firmware, OpenOptions, Profile, Ssd};

/// Nothing runs in the background.
fn quiet() -> MountOptions {
    MountOptions { commit_interval_ns: 0, ..MountOptions::default() }
}

/// So little memory that pages, metadata and inodes come and go all the time.
fn cramped() -> MountOptions {
    MountOptions { page_cache_pages: 16, buffer_blocks: 8, inode_cache: 3, ..quiet() }
}

fn journaled() -> MountOptions {
    MountOptions { data: DataMode::Journal, ..cramped() }
}

fn device(free: bool) -> Arc<Ssd> {
    let mut profile = Profile::named("mssd-pcie3").expect("a built-in profile");
    profile.firmware.kind = Firmware::PageCache;
    let options = OpenOptions { free, ..OpenOptions::default() };
    Arc::new(Ssd::try_in_memory(&profile, 64 << 20, &options).expect("64 MB in memory"))
}

fn make_on(device: Arc<Ssd>, options: MountOptions) -> Ext4Like<Ssd> {
    let format = FormatOptions { inodes: Some(20_480), ..FormatOptions::default() };
    Ext4Like::format(&*device, &format).expect("a 64 MB device can be formatted");
    Ext4Like::mount(device, options).expect("what was just formatted can be mounted")
}

fn make_with(options: MountOptions) -> Ext4Like<Ssd> {
    make_on(device(true), options)
}

fn remount(fs: Ext4Like<Ssd>, options: MountOptions) -> Ext4Like<Ssd> {
    let device = Arc::clone(fs.device());
    fs.unmount().expect("an idle file system unmounts");
    let report = amphi_fs_ext4like::fsck::check(&device).expect("the image can be checked");
    assert!(report.findings.is_empty(), "fsck after unmount: {:#?}", report.findings);
    let fs = Ext4Like::mount(device, options).expect("what was cleanly unmounted can be mounted");
    assert_eq!(fs.replayed(), 0, "a clean journal is empty");
    fs
}

#[test]
fn a_page_read_ahead_may_be_unreadable() {
    let memory = Arc::new(Memory::new(vec![0; 64 << 20]));
    Ext4Like::format(&*memory, &FormatOptions::default()).expect("a 64 MB device can be formatted");
    let mount = || Ext4Like::mount(Arc::clone(&memory), quiet()).expect("it can be mounted");
    amphi_conformance::check_unreadable_ahead(mount(), |fs, bytes| {
        fs.unmount().expect("an idle file system unmounts");
        memory.spoil_page_of(bytes);
        mount()
    });
}

#[test]
fn keeps_the_promises() {
    amphi_conformance::check_all(|| make_with(quiet()));
}

#[test]
fn keeps_the_promises_of_a_read_only_mount() {
    let read_only = || MountOptions { read_only: true, ..quiet() };
    amphi_conformance::check_read_only(|| make_with(quiet()), |fs| remount(fs, read_only()));
}

#[test]
fn keeps_the_promises_under_memory_pressure() {
    amphi_conformance::check_all(|| make_with(cramped()));
}

#[test]
fn keeps_the_promises_with_data_journaling() {
    amphi_conformance::check_all(|| make_with(journaled()));
}

#[test]
fn keeps_the_promises_on_page_cache_firmware_in_virtual_time() {
    Sim::new(1).run(|| amphi_conformance::check_all(|| make_on(device(false), quiet())));
}

#[test]
fn random_operations_match_the_model() {
    for seed in 0..30 {
        random::run(|| make_with(quiet()), seed, 1000);
    }
}

#[test]
fn random_operations_match_the_model_under_memory_pressure() {
    for seed in 0..20 {
        random::run(|| make_with(cramped()), seed, 1000);
    }
}

#[test]
fn random_operations_match_the_model_across_remounts() {
    for seed in 100..130 {
        random::run_with_remounts(|| make_with(quiet()), |fs| remount(fs, cramped()), seed, 1000, 50);
    }
}

#[test]
fn random_operations_match_the_model_with_data_journaling() {
    for seed in 200..220 {
        random::run_with_remounts(|| make_with(journaled()), |fs| remount(fs, journaled()), seed, 1000, 50);
    }
}

/// As after the program was killed.
fn crash(fs: Ext4Like<Ssd>, options: MountOptions) -> Ext4Like<Ssd> {
    let device = Arc::clone(fs.device());
    drop(fs);
    Ext4Like::mount(device, options).expect("what was left can be mounted")
}

#[test]
fn random_operations_match_the_model_across_crashes() {
    for options in [cramped, journaled] {
        for seed in 300..315 {
            random::run_with_crashes(|| make_with(options()), |fs| crash(fs, options()), seed, 1000, 50);
        }
    }
}

#[test]
fn concurrent_tasks_match_their_models_in_virtual_time() {
    for seed in 0..40 {
        Sim::new(seed)
            .run(move || random::run_tasks(|| make_on(device(seed % 2 == 0), cramped()), seed, 100, 16));
    }
}

#[test]
fn concurrent_tasks_match_their_models_on_real_threads() {
    for seed in 0..10 {
        random::run_tasks(
            || make_with(MountOptions { commit_interval_ns: 1_000_000, ..cramped() }),
            seed,
            150,
            8,
        );
    }
}
