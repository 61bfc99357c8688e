//! ByteFS on the emulated SSD, with the power cut or the host crashed at a random step of a random workload:
//! every completed metadata operation is there, the interrupted one is there or not, synced data is there
//! (and with data journaling every file is as it was at one moment), the check finds nothing, and the file
//! system goes on working (BY-8, BY-17).
//!
//! `AMPHI_SEED=n cargo test -p amphi-fs-bytefs crash::NAME` replays one run.

use std::sync::Arc;

use amphi_fs_bytefs::{ByteFs, DataMode, FormatOptions, MountOptions, fsck};
use amphi_rt::Sim;
use amphi_ssd::{Firmware, Profile, Ssd};
use amphi_vfs::Error;

pub mod walk;
mod workload;
use walk::{difference, walk};
use workload::{Expected, Numbers, Op};

/// A device whose log is so small that it is cleaned all the time.
fn device(profile: &str) -> Ssd {
    let (dual, profile) = match profile.strip_prefix("page-cache:") {
        Some(profile) => (true, profile),
        None => (false, profile),
    };
    let mut profile = Profile::named(profile).expect("the profile is built in");
    profile.log.region_bytes = 128 << 10;
    profile.log.txlog_bytes = 8 << 10;
    profile.flash.pages_per_block = 16;
    // "page-cache:" asks for the firmware of the ablation Dual.
    if dual {
        profile.firmware.kind = Firmware::PageCache;
    }
    Ssd::in_memory(&profile, 24 << 20)
}

fn options(data: DataMode) -> MountOptions {
    MountOptions { data, write_back_interval_ns: 0, page_cache_pages: 600, ..MountOptions::default() }
}

fn unwrap_device(fs: ByteFs<Ssd>) -> Ssd {
    let device = Arc::clone(fs.device());
    drop(fs);
    Arc::into_inner(device).expect("the file system was the device's only other user")
}

fn check(device: &Ssd, when: &str) {
    let report = fsck::check(device, &mut |_| {}).unwrap_or_else(|error| panic!("{when}: fsck: {error}"));
    let wrong: Vec<_> =
        report.findings.iter().filter(|finding| finding.severity != fsck::Severity::Info).collect();
    assert!(wrong.is_empty(), "{when}: fsck found {wrong:#?}");
}

/// Powers up and mounts; with `cut_recovery`, the power fails again during recovery, which must not matter.
fn recover(mut device: Ssd, numbers: &mut Numbers, cut_recovery: bool, data: DataMode) -> ByteFs<Ssd> {
    device = device.restart().expect("the device powers up");
    if cut_recovery {
        device.cut_after_steps(numbers.below(200), numbers.below(u64::MAX));
        let device_again = Arc::new(device);
        drop(ByteFs::mount(Arc::clone(&device_again), options(data)));
        device = Arc::into_inner(device_again).expect("a mount that is gone holds no device");
        device = device.restart().expect("the device powers up after a cut recovery");
    }
    ByteFs::mount(Arc::new(device), options(data)).expect("the file system mounts after a crash")
}

/// Which kind of end a run meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    PowerCut,
    HostCrash,
    CutTwice,
}

fn run(seed: u64, end: End, profile: &str, data: DataMode) {
    let mut numbers = Numbers(seed);
    let ssd = device(profile);
    ByteFs::format(&ssd, &FormatOptions { inodes: Some(512), ..FormatOptions::default() })
        .expect("it can be formatted");
    let mut fs = ByteFs::mount(Arc::new(ssd), options(data)).expect("it can be mounted");
    let mut expected = Expected::new();
    let large = numbers.below(4) == 0;
    for _generation in 0..2 {
        let cut_seed = numbers.below(u64::MAX);
        if end != End::HostCrash {
            fs.device().cut_after_steps(numbers.below(3000), cut_seed);
        }
        let length = 20 + numbers.below(250);
        let mut interrupted = None;
        for _ in 0..length {
            let op = Op::random(&mut numbers, large);
            let answer = op.apply(&fs);
            if matches!(answer, Err(Error::Io(_) | Error::ReadOnly)) || !fs.device().has_power() {
                interrupted = Some(op);
                break;
            }
            expected.follow(&op, &answer);
        }
        if end == End::HostCrash {
            fs.device().host_crash(cut_seed);
        } else if interrupted.is_none() {
            fs.device().power_cut(cut_seed);
        }
        let ssd = unwrap_device(fs);
        fs = recover(ssd, &mut numbers, end == End::CutTwice, data);
        let found = walk(&fs);
        let unsynced = expected.unsynced.clone();
        if let Some(wrong) = difference(&found, &expected.tree(), &unsynced) {
            // Then the interrupted operation must have happened, as a whole.
            let op = interrupted.take().unwrap_or_else(|| panic!("seed {seed}: {wrong}"));
            expected.follow(&op, &Ok(()));
            let unsynced = unsynced.union(&expected.unsynced).copied().collect();
            if let Some(wrong_after) = difference(&found, &expected.tree(), &unsynced) {
                panic!(
                    "seed {seed}: interrupted at {op:?}: neither before ({wrong}) nor after ({wrong_after})"
                );
            }
        }
        if data == DataMode::Journal
            && let Some(wrong) = expected.torn(&found, interrupted.as_ref())
        {
            panic!("seed {seed}: interrupted at {interrupted:?}: {wrong}");
        }
        check(fs.device(), &format!("seed {seed}, after {interrupted:?}"));
        // What was not synced may be anything; from here on it is what was found.
        expected.adopt(&found);
    }
    let op = Op::Create("/fresh".into(), 0o600);
    let answer = op.apply(&fs);
    assert_eq!(answer, Ok(()), "seed {seed}: the file system is in working order");
    let device = Arc::clone(fs.device());
    fs.unmount().unwrap_or_else(|error| panic!("seed {seed}: unmount: {error}"));
    check(&device, &format!("seed {seed}, after unmount"));
}

fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("AMPHI_SEED") {
        Ok(seed) => vec![seed.parse().expect("AMPHI_SEED is a number")],
        Err(_) => (0..count).collect(),
    }
}

fn run_all(name: &str, count: u64, end: End, profile: &str, data: DataMode) {
    for seed in seeds(count) {
        let outcome = std::panic::catch_unwind(|| run(seed, end, profile, data));
        if outcome.is_err() {
            panic!("replay with: AMPHI_SEED={seed} cargo test -p amphi-fs-bytefs crash::{name}");
        }
    }
}

#[test]
fn survives_power_cuts() {
    run_all("survives_power_cuts", 400, End::PowerCut, "free", DataMode::Ordered);
}

#[test]
fn survives_host_crashes() {
    run_all("survives_host_crashes", 400, End::HostCrash, "free", DataMode::Ordered);
}

#[test]
fn survives_power_cuts_during_recovery() {
    run_all("survives_power_cuts_during_recovery", 400, End::CutTwice, "free", DataMode::Ordered);
}

#[test]
fn journaled_data_survives_power_cuts_whole() {
    run_all("journaled_data_survives_power_cuts_whole", 400, End::PowerCut, "free", DataMode::Journal);
}

#[test]
fn journaled_data_survives_host_crashes_whole() {
    run_all("journaled_data_survives_host_crashes_whole", 400, End::HostCrash, "free", DataMode::Journal);
}

#[test]
fn journaled_data_survives_power_cuts_during_recovery_whole() {
    let name = "journaled_data_survives_power_cuts_during_recovery_whole";
    run_all(name, 400, End::CutTwice, "free", DataMode::Journal);
}

#[test]
fn the_dual_variant_survives_power_cuts() {
    run_all("the_dual_variant_survives_power_cuts", 300, End::PowerCut, "page-cache:free", DataMode::Ordered);
}

#[test]
fn the_dual_variant_survives_host_crashes() {
    run_all(
        "the_dual_variant_survives_host_crashes",
        300,
        End::HostCrash,
        "page-cache:free",
        DataMode::Ordered,
    );
}

#[test]
fn the_dual_variant_survives_power_cuts_during_recovery() {
    let name = "the_dual_variant_survives_power_cuts_during_recovery";
    run_all(name, 300, End::CutTwice, "page-cache:free", DataMode::Ordered);
}

fn run_all_in_virtual_time(name: &str, data: DataMode) {
    for seed in seeds(100) {
        let replay = format!("AMPHI_SEED={seed} cargo test -p amphi-fs-bytefs crash::{name}");
        let outcome = std::panic::catch_unwind(|| {
            Sim::new(seed).run(move || run(seed, End::PowerCut, "mssd-pcie3", data));
        });
        assert!(outcome.is_ok(), "replay with: {replay}");
    }
}

#[test]
fn survives_power_cuts_in_virtual_time() {
    run_all_in_virtual_time("survives_power_cuts_in_virtual_time", DataMode::Ordered);
}

#[test]
fn journaled_data_survives_power_cuts_in_virtual_time_whole() {
    run_all_in_virtual_time("journaled_data_survives_power_cuts_in_virtual_time_whole", DataMode::Journal);
}
