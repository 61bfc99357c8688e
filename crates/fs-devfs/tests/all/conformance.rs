//! DevFS keeps what `vfs::FileSystem` promises, and answers random operations as the model does: with room,
//! with device memory that is always short, where files leave it when they are closed, without capacitors,
//! across remounts, and with several tasks.

use amphi_conformance::{check_all, check_read_only, random};
use amphi_fs_devfs::{DevFs, MountOptions, OnClose};
use amphi_rt::Sim;
use amphi_ssd::Ssd;
use amphi_volume::Volume;

use crate::small::{cramped, make, make_on, naive, remount};

fn make_roomy() -> DevFs<Ssd> {
    make(&MountOptions::default())
}

fn make_cramped() -> DevFs<Ssd> {
    make_on(64 << 20, &cramped())
}

fn make_naive() -> DevFs<Ssd> {
    make(&naive())
}

/// What a file has in device memory leaves it when the file is closed.
fn make_eager() -> DevFs<Ssd> {
    make(&MountOptions { on_close: OnClose::Inodes, ..MountOptions::default() })
}

#[test]
fn keeps_the_promises() {
    check_all(make_roomy);
}

#[test]
fn keeps_the_promises_where_closed_files_leave_device_memory() {
    check_all(make_eager);
}

#[test]
fn keeps_the_promises_with_little_memory() {
    check_all(make_cramped);
}

#[test]
fn keeps_the_promises_without_capacitors() {
    check_all(make_naive);
}

#[test]
fn keeps_the_promises_of_a_read_only_mount() {
    let read_only = MountOptions { read_only: true, ..MountOptions::default() };
    check_read_only(make_roomy, |fs| remount(fs, &read_only));
}

#[test]
fn keeps_the_promises_in_virtual_time() {
    Sim::new(1).run(|| check_all(make_roomy));
}

/// Remounts, and checks what was unmounted.
fn checked(fs: DevFs<Ssd>, mount: &MountOptions) -> DevFs<Ssd> {
    let ssd = std::sync::Arc::clone(fs.device());
    fs.unmount().expect("an idle file system unmounts");
    let report = <DevFs<Ssd> as Volume<Ssd>>::check(&ssd, &mut |_| ()).expect("the SSD works");
    assert!(report.is_clean(), "the check found {:?}", report.findings);
    DevFs::mount(&ssd, mount).expect("what was cleanly unmounted can be mounted")
}

#[test]
fn random_operations_match_the_model() {
    for seed in 0..30 {
        random::run(make_roomy, seed, 1000);
        random::run(make_naive, 100 + seed, 1000);
        random::run(make_eager, 150 + seed, 300);
    }
}

#[test]
fn random_operations_match_the_model_across_remounts() {
    for seed in 200..230 {
        random::run_with_remounts(make_cramped, |fs| checked(fs, &cramped()), seed, 1000, 50);
    }
}

/// As after the program was killed.
fn crash(fs: DevFs<Ssd>, mount: &MountOptions) -> DevFs<Ssd> {
    let ssd = std::sync::Arc::clone(fs.device());
    drop(fs);
    DevFs::mount(&ssd, mount).expect("what was left can be mounted")
}

#[test]
fn random_operations_match_the_model_across_crashes() {
    for seed in 300..330 {
        random::run_with_crashes(make_cramped, |fs| crash(fs, &cramped()), seed, 1000, 50);
        random::run_with_crashes(make_naive, |fs| crash(fs, &naive()), seed, 1000, 50);
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
        random::run_tasks(make_eager, seed, 150, 8);
        random::run_tasks(make_roomy, seed, 150, 8);
        random::run_tasks(make_cramped, seed, 150, 8);
    }
}

amphi_conformance::one_tree_tests!("amphi-fs-devfs", 0..50, |seed| if seed % 2 == 0 {
    make_cramped()
} else {
    make_eager()
});
