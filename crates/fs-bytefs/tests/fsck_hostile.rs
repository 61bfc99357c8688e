//! Images damaged at random behind renewed checksums, and images that claim absurd sizes: the check ends
//! soon, with a report, in little memory.
//!
//! `AMPHI_SEEDS=1000000` runs more seeds, `AMPHI_SEED=n` replays one.

mod fsck_image;

use std::panic::{AssertUnwindSafe, catch_unwind};

use amphi_fs_bytefs::format::*;
use amphi_fs_bytefs::fsck;
use amphi_memory_device::Memory;
use amphi_rt::time::now_ns;
use fsck_image::Image;
use fsck_image::corrupt::{Random, corrupt};
use fsck_image::seeds;
use zerocopy::{FromZeros, IntoBytes};

/// Most memory this process ever had, in MiB.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).map_or(0, |kib| kib / 1024)
}

/// Checks of these images take milliseconds; one that is led astray counts to 2^30 and more. A loaded machine
/// stops us for seconds.
const TOOK_MS_MAX: u64 = 20_000;

#[test]
fn random_damage_ends_in_a_report() {
    let sample = Image::sample();
    let (mut damaged, mut slowest) = (0, 0);
    for seed in seeds(20_000) {
        let mut image = sample.clone();
        corrupt(&mut image, &mut Random(seed));
        let start = now_ns();
        let device = image.device();
        let outcome = catch_unwind(AssertUnwindSafe(|| fsck::check(&device, &mut |_| ())));
        let report = match outcome {
            Ok(report) => report.expect("the device does not fail"),
            Err(_) => panic!("the check panicked: replay with AMPHI_SEED={seed}"),
        };
        let took = (now_ns() - start) / 1_000_000;
        assert!(took < TOOK_MS_MAX, "the check took {took} ms: replay with AMPHI_SEED={seed}");
        slowest = slowest.max(took);
        damaged += u64::from(!report.is_clean());
        assert!(image.bytes == device.contents(), "a check changed the image: replay with AMPHI_SEED={seed}");
    }
    println!("{damaged} images found damaged, slowest check {slowest} ms, peak {} MiB", peak_mib());
    assert!(peak_mib() < 200, "the checks took {} MiB", peak_mib());
}

#[test]
fn a_huge_empty_geometry_costs_little() {
    // Nearly all of a 4 GB device is inode table. Memory that is never written takes no room.
    let mut image = Image::empty_of(1 << 20, 30 << 20);
    image.put_dir(ROOT_INO, ROOT_INO, 2);
    // The last inode is in use, and lost.
    image.put_file((30 << 20) - 1, 1, 0, 0, &[], 0);
    let device = Memory::new(image.bytes);
    let start = now_ns();
    let report = fsck::check(&device, &mut |_| ()).expect("the device does not fail");
    let took = (now_ns() - start) / 1_000_000;
    println!("{took} ms, peak {} MiB", peak_mib());
    assert_eq!((report.errors, report.warnings), (1, 0), "{:?}", report.findings);
    assert!(took < TOOK_MS_MAX, "the check took {took} ms");
    assert!(peak_mib() < 200, "the check took {} MiB", peak_mib());
}

#[test]
fn a_superblock_cannot_claim_more_than_the_device() {
    for (pages, inodes) in [(u64::from(u32::MAX), u32::MAX), (1 << 20, 1 << 30), (640, u32::MAX), (0, 0)] {
        let layout = Layout::plan(pages, inodes, 12);
        let mut sb = Superblock::new_zeroed();
        sb.magic = MAGIC;
        sb.version = VERSION.into();
        sb.page_bytes = (PAGE as u32).into();
        sb.set_layout(&layout);
        sb.crc = sb.checksum().into();
        let mut bytes = vec![0; 640 * PAGE];
        bytes[..size_of::<Superblock>()].copy_from_slice(sb.as_bytes());
        let report = fsck::check(&Memory::new(bytes), &mut |_| ()).expect("the device does not fail");
        assert!(
            matches!(report.findings[0].kind, fsck::FindingKind::SuperblockUnreadable { .. }),
            "{report:?}"
        );
    }
    assert!(peak_mib() < 200, "the checks took {} MiB", peak_mib());
}
