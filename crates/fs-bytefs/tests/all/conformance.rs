//! ByteFS keeps what `vfs::FileSystem` promises, and answers random operations as the model does: with room,
//! under memory pressure, across remounts, and with several tasks in virtual time.

use std::sync::Arc;

use amphi_conformance::random;
use amphi_fs_bytefs::{ByteFs, DataMode, FormatOptions, MetadataMode, MountOptions, Variant};
use amphi_rt::Sim;

use amphi_memory_device::Memory;

fn roomy() -> MountOptions {
    MountOptions { write_back_interval_ns: 0, ..MountOptions::default() }
}

/// So little memory that pages and inodes come and go all the time.
fn cramped() -> MountOptions {
    MountOptions { page_cache_pages: 6, inode_cache: 3, ..roomy() }
}

/// Data journaling, under memory pressure too.
fn journaled() -> MountOptions {
    MountOptions { data: DataMode::Journal, ..cramped() }
}

/// The paper's ablation on firmware that caches pages: the host makes the transactions.
fn make_dual() -> ByteFs<Memory> {
    let device = Arc::new(Memory::without_transactions(vec![0; 64 << 20]));
    let format = FormatOptions { inodes: Some(20_480), ..FormatOptions::default() };
    ByteFs::format(&*device, &format).expect("a 64 MB device can be formatted");
    ByteFs::mount(device, cramped()).expect("what was just formatted can be mounted")
}

/// The paper's ablation without the choice of interface.
fn log_only() -> MountOptions {
    MountOptions { variant: Variant::Log, ..cramped() }
}

/// Transactions that are grouped, of which a group holds few.
fn grouped() -> MountOptions {
    MountOptions { metadata: MetadataMode::Grouped, group_bytes: 4 << 10, ..cramped() }
}

fn make_with(options: MountOptions) -> ByteFs<Memory> {
    let device = Arc::new(Memory::new(vec![0; 64 << 20]));
    let format = FormatOptions { inodes: Some(20_480), ..FormatOptions::default() };
    ByteFs::format(&*device, &format).expect("a 64 MB device can be formatted");
    ByteFs::mount(device, options).expect("what was just formatted can be mounted")
}

fn remount(fs: ByteFs<Memory>, options: MountOptions) -> ByteFs<Memory> {
    let device = Arc::clone(fs.device());
    fs.unmount().expect("an idle file system unmounts");
    let report = amphi_fs_bytefs::fsck::check(&*device, &mut |_| {}).expect("the image can be checked");
    assert!(report.findings.is_empty(), "fsck after unmount: {:#?}", report.findings);
    ByteFs::mount(device, options).expect("what was cleanly unmounted can be mounted")
}

#[test]
fn keeps_the_promises() {
    amphi_conformance::check_all(|| make_with(roomy()));
}

#[test]
fn keeps_the_promises_of_a_read_only_mount() {
    let read_only = || MountOptions { read_only: true, ..roomy() };
    amphi_conformance::check_read_only(|| make_with(roomy()), |fs| remount(fs, read_only()));
}

#[test]
fn names_find_the_room_that_writes_to_come_hold() {
    amphi_conformance::check_room_for_names(|| {
        let device = Arc::new(Memory::new(vec![0; 16 << 20]));
        ByteFs::format(&*device, &FormatOptions::default()).expect("a 16 MB device can be formatted");
        ByteFs::mount(device, roomy()).expect("what was just formatted can be mounted")
    });
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
fn keeps_the_promises_as_the_log_variant() {
    amphi_conformance::check_all(|| make_with(log_only()));
}

#[test]
fn keeps_the_promises_as_the_dual_variant() {
    amphi_conformance::check_all(make_dual);
}

#[test]
fn keeps_the_promises_with_grouped_transactions() {
    amphi_conformance::check_all(|| make_with(grouped()));
    amphi_conformance::check_room_for_names(|| {
        let device = Arc::new(Memory::new(vec![0; 16 << 20]));
        ByteFs::format(&*device, &FormatOptions::default()).expect("a 16 MB device can be formatted");
        ByteFs::mount(device, grouped()).expect("what was just formatted can be mounted")
    });
}

#[test]
fn random_operations_match_the_model_with_grouped_transactions() {
    for seed in 600..610 {
        random::run_with_remounts(|| make_with(grouped()), |fs| remount(fs, grouped()), seed, 1000, 50);
    }
    for seed in 0..10 {
        Sim::new(seed).run(move || random::run_tasks(|| make_with(grouped()), seed, 100, 16));
    }
}

#[test]
fn random_operations_match_the_model_as_the_dual_variant() {
    for seed in 500..520 {
        random::run_with_remounts(make_dual, |fs| remount(fs, cramped()), seed, 1000, 50);
    }
}

#[test]
fn random_operations_match_the_model_with_data_journaling() {
    for seed in 300..330 {
        random::run_with_remounts(|| make_with(journaled()), |fs| remount(fs, journaled()), seed, 1000, 50);
    }
}

#[test]
fn random_operations_match_the_model_as_the_log_variant() {
    for seed in 400..420 {
        random::run_with_remounts(|| make_with(log_only()), |fs| remount(fs, log_only()), seed, 1000, 50);
    }
}

#[test]
fn concurrent_tasks_with_data_journaling_match_their_models_in_virtual_time() {
    for seed in 0..50 {
        Sim::new(seed).run(move || random::run_tasks(|| make_with(journaled()), seed, 100, 16));
    }
}

#[test]
fn keeps_the_promises_in_virtual_time() {
    Sim::new(1).run(|| amphi_conformance::check_all(|| make_with(roomy())));
}

#[test]
fn random_operations_match_the_model() {
    for seed in 0..40 {
        random::run(|| make_with(roomy()), seed, 1000);
    }
}

#[test]
fn random_operations_match_the_model_under_memory_pressure() {
    for seed in 100..130 {
        random::run(|| make_with(cramped()), seed, 1000);
    }
}

#[test]
fn random_operations_match_the_model_across_remounts() {
    for seed in 200..230 {
        random::run_with_remounts(|| make_with(roomy()), |fs| remount(fs, cramped()), seed, 1000, 50);
    }
}

/// As after the program was killed.
fn crash(fs: ByteFs<Memory>, options: MountOptions) -> ByteFs<Memory> {
    let device = Arc::clone(fs.device());
    drop(fs);
    ByteFs::mount(device, options).expect("what was left can be mounted")
}

#[test]
fn random_operations_match_the_model_across_crashes() {
    for options in [cramped, journaled, log_only, grouped] {
        for seed in 700..715 {
            random::run_with_crashes(|| make_with(options()), |fs| crash(fs, options()), seed, 1000, 50);
        }
    }
    for seed in 700..715 {
        random::run_with_crashes(make_dual, |fs| crash(fs, cramped()), seed, 1000, 50);
    }
}

#[test]
fn concurrent_tasks_match_their_models_in_virtual_time() {
    for seed in 0..100 {
        Sim::new(seed).run(move || random::run_tasks(|| make_with(cramped()), seed, 100, 16));
    }
}

#[test]
fn concurrent_tasks_match_their_models_on_real_threads() {
    for seed in 0..20 {
        random::run_tasks(|| make_with(cramped()), seed, 150, 8);
    }
}
