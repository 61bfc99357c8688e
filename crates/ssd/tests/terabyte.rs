//! A terabyte on a laptop: a device far larger than memory and disk takes what was written to it and little
//! more.
//!
//! A gigabyte is written, spread over the whole device page by page, then one page after the other: less than
//! 2.5 GB of disk and 1.5 GB of memory, mapped file included. `AMPHI_TERABYTE_MB` writes another amount.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use amphi_device::{BlockPort, BytePortExt, Lpa, Structure};
use amphi_ssd::{OpenOptions, Profile, Ssd};

const TAG: Structure = Structure::Data;
const MB: u64 = 1 << 20;

/// Memory of this process in bytes, shared mappings included.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a line of its own");
    line.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok()).expect("a number of kB") * 1024
}

fn stamp(page: u64) -> [u8; 4096] {
    let mut bytes = [page as u8; 4096];
    bytes[..8].copy_from_slice(&page.to_le_bytes());
    bytes
}

fn check(path: &Path, pages: u64, place: impl Fn(u64) -> u64) {
    let before = resident();
    let options = OpenOptions { free: true, ..OpenOptions::default() };
    let profile = Profile::named("mssd-pcie3").expect("built in");
    Ssd::create(path, &profile, 1 << 40).expect("created");
    let ssd = Ssd::open(path, &options).expect("opens");
    let empty = resident() - before;
    for page in 0..pages {
        ssd.write(Lpa(place(page)), &stamp(page), TAG).expect("room");
    }
    ssd.trim(Lpa(place(5)), 1).expect("trims");
    ssd.persist(Lpa(place(6)).byte(8), &[0xee; 8], None, TAG).expect("room");
    let memory = resident() - before;
    drop(ssd);
    let disk = std::fs::metadata(path).expect("there").blocks() * 512;
    // The memory to find the mapping again, once from a checkpoint.
    let ssd = Ssd::open(path, &options).expect("opens");
    let reopened = resident() - before;
    println!(
        "{} MB written: disk {} MB; memory {} MB, of which {} MB before the first write; {} MB after opening again",
        pages * 4096 / MB,
        disk / MB,
        memory / MB,
        empty / MB,
        reopened / MB
    );
    let mut bytes = [0; 4096];
    for page in (0..pages).step_by(97).chain(0..10) {
        ssd.read(Lpa(place(page)), &mut bytes, TAG).expect("reads");
        let mut expected = stamp(page);
        match page {
            5 => expected.fill(0),
            6 => expected[8..16].fill(0xee),
            _ => {}
        }
        assert!(bytes == expected, "page {page}");
    }
    drop(ssd);
    std::fs::remove_file(path).expect("removed");
    if pages * 4096 == 1 << 30 {
        assert!(memory < 1_500_000_000, "{memory} bytes of memory");
        assert!(disk < 2_500_000_000, "{disk} bytes of disk");
    }
    // What the device needs whatever was written: headers of its 1.1 million blocks, the free ones among them
    // sorted by wear.
    let fixed = 300 * MB;
    assert!(memory < pages * 4096 * 6 / 5 + fixed, "{memory} bytes of memory");
    assert!(reopened < pages * 4096 * 6 / 5 + fixed, "{reopened} bytes of memory");
    assert!(disk < pages * 4096 * 5 / 4 + fixed, "{disk} bytes of disk");
}

#[test]
fn a_terabyte_takes_what_was_written_to_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let wanted = std::env::var("AMPHI_TERABYTE_MB").map_or(1024, |mb| mb.parse().expect("a number of MB"));
    let pages = wanted * MB / 4096;
    // A stride coprime to the number of pages visits each at most once, all over the device.
    let all = (1 << 40) / 4096;
    println!("spread over the device, page by page:");
    check(&dir.path().join("spread.img"), pages, |page| page.wrapping_mul(102_334_155) % all);
    println!("one after the other:");
    check(&dir.path().join("sequential.img"), pages, |page| (1 << 27) + page);
}
