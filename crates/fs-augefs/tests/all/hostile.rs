//! Whatever the block side, the memory area and the records of the metadata store hold, mounting, using and
//! checking it ends in an answer or an error: no panic, no loop. A repair mends all, or says in one finding
//! why it cannot. `AMPHI_SEED` replays one case.

use std::sync::Arc;

use amphi_conformance::damaged;
use amphi_device::{BlockPort, BytePortExt, Lpa, Structure};
use amphi_fs_augefs::{AugeFs, FormatOptions, MountOptions, fsck, fsck::Repair};
use amphi_rt::random::Generator;
use amphi_ssd::Ssd;
use amphi_vfs::{Allocate, Cred, FileSystem, FileType, Ino, SetAttr, WriteMode};

use crate::small::{name, roomy, ssd};

const MEMORY: u64 = 128 << 10;
const META_PAGES: u32 = 256;

fn options() -> MountOptions {
    MountOptions { page_cache_pages: 64, inode_cache: 3, name_cache: 64, ..roomy() }
}

/// A file system with one of everything, after a crash or an unmount.
fn made(crashed: bool) -> Arc<Ssd> {
    let ssd = ssd(MEMORY, 4 << 20);
    let format = FormatOptions {
        domains: 2,
        segment_blocks: 8,
        meta_pages: Some(META_PAGES),
        ..FormatOptions::default()
    };
    AugeFs::format(&ssd, &format).expect("it can be formatted");
    let fs = AugeFs::mount(&ssd, options()).expect("it can be mounted");
    let make = |text: &str| {
        let made = fs.create(Ino::ROOT, name(text), FileType::Regular, 0o644, 0, &Cred::ROOT);
        made.expect("there is room").attr.ino
    };
    let put = |ino, offset, bytes: &[u8]| {
        fs.write(ino, offset, bytes, WriteMode::default(), &Cred::ROOT).expect("there is room");
        fs.fsync(ino, false).expect("the device works");
    };
    let (small, large) = (make("small"), make("large"));
    put(small, 10, &[1; 300]);
    put(large, 0, &[2; 100_000]);
    put(large, 50 << 20, &[3; 5000]);
    fs.sync().expect("the device works");
    put(large, 100, &[4; 5000]);
    fs.mkdir(Ino::ROOT, name("dir"), 0o755, &Cred::ROOT).expect("there is room");
    fs.symlink(Ino::ROOT, name("link"), &[b'x'; 200], &Cred::ROOT).expect("there is room");
    fs.link(small, Ino::ROOT, name("other")).expect("it can have another name");
    fs.setxattr(small, b"user.a", b"value", amphi_vfs::XattrMode::Set).expect("there is room");
    fs.allocate(small, 8192, 8192, Allocate::Reserve { keep_size: true }, &Cred::ROOT)
        .expect("there is room");
    let cut = SetAttr { size: Some(60_001), ..SetAttr::default() };
    fs.setattr(large, &cut, &Cred::ROOT).expect("it is a file");
    if crashed {
        drop(fs)
    } else {
        fs.unmount().expect("it is idle")
    }
    ssd
}

/// Changes some of a value: a byte, a number, its length.
fn damage(dice: &mut Generator, value: &mut Vec<u8>) {
    match dice.below(4) {
        0 => value.truncate(dice.below(value.len() as u64 + 1) as usize),
        1 => value.extend((0..=dice.below(20)).map(|_| 7)),
        _ if value.is_empty() => {}
        kind => {
            let at = dice.below(value.len() as u64) as usize;
            let bytes = if kind == 2 { 1 } else { 8.min(value.len() - at) };
            let word = match dice.below(4) {
                0 => 0,
                1 => u64::MAX,
                2 => dice.below(4096),
                _ => dice.next(),
            };
            value[at..at + bytes].copy_from_slice(&word.to_le_bytes()[..bytes]);
        }
    }
}

/// Changes records, as who knows the format could: all checksums are right.
fn damage_records(dice: &mut Generator, ssd: &Arc<Ssd>) {
    let store = amphi_lsm::Store::open(Arc::clone(ssd), Lpa(1), amphi_lsm::Options::default());
    let store = store.expect("it was a store");
    let all = store.range(&[], None).expect("it can be read").collect::<Result<Vec<_>, _>>();
    let all = all.expect("it can be read");
    for _ in 0..=dice.below(3) {
        let (key, mut value) = all[dice.below(all.len() as u64) as usize].clone();
        match dice.below(6) {
            0 => store.delete(&key).expect("it can be changed"),
            1 => {
                // A value of another key, often of another kind.
                let other = &all[dice.below(all.len() as u64) as usize].1;
                store.put(&key, other).expect("it can be changed");
            }
            2 => {
                let mut other = key.clone();
                let at = 2 + dice.below(other.len() as u64 - 2) as usize;
                other[at] = dice.below(4) as u8;
                store.put(&other, &value).expect("it can be changed");
            }
            _ => {
                damage(dice, &mut value);
                store.put(&key, &value).expect("it can be changed");
            }
        }
    }
}

/// Changes bytes of both sides.
fn damage_device(dice: &mut Generator, ssd: &Arc<Ssd>) {
    for _ in 0..=dice.below(4) {
        if dice.below(4) == 0 {
            let at = dice.below(MEMORY / 8) * 8;
            ssd.persist(at, &dice.next().to_le_bytes(), None, Structure::Other).expect("it is inside");
            continue;
        }
        let page = match dice.below(4) {
            0 => 0,
            1 => dice.below(u64::from(META_PAGES)),
            _ => u64::from(META_PAGES) + dice.below(100),
        };
        let mut bytes = vec![0; 4096];
        ssd.read(Lpa(page), &mut bytes, Structure::Other).expect("it is inside");
        let at = dice.below(512) as usize * if dice.below(2) == 0 { 8 } else { 1 };
        bytes[at..at + 8].copy_from_slice(&dice.next().to_le_bytes());
        ssd.write(Lpa(page), &bytes, Structure::Other).expect("it is inside");
    }
}

fn run(seed: u64) {
    let mut dice = Generator::new(seed);
    let ssd = made(dice.below(2) == 0);
    if dice.below(3) > 0 {
        damage_records(&mut dice, &ssd);
    } else {
        damage_device(&mut dice, &ssd);
    }
    if let Ok(Repair { before, after }) = fsck::repair(&ssd)
        && !after.is_clean()
    {
        // What cannot be opened cannot be mended; whatever else was found is.
        let last = after.findings.last().map(|found| &found.what);
        assert!(AugeFs::mount(&ssd, options()).is_err() && after.findings.len() == 1, "{before:?} {last:?}");
    }
    if dice.below(2) == 0 {
        damage_device(&mut dice, &ssd);
    }
    if let Ok(fs) = AugeFs::mount(&ssd, options()) {
        damaged::use_all(&fs, (50 << 20) - 100);
        let _any = fs.unmount();
    }
    let _any = fsck::check(&ssd);
}

/// A record of the SIT whose key was nearly right took the place of the right one, and nothing deleted it.
#[test]
fn a_key_that_is_none_is_refused() {
    run(1667);
}

/// A record of the SIT that was newer than its domain's checkpoint came to count with the next one, which the
/// repair made.
#[test]
fn a_record_that_is_too_new_does_not_come_to_count() {
    run(11_922);
}

#[test]
fn damaged_images_are_answered_or_refused() {
    damaged::each_seed("amphi-fs-augefs", 400, 50_000, run);
}

/// Recovery goes on with the numbers of the nodes that an `fsync` wrote.
#[test]
fn a_node_of_an_fsync_with_the_last_number_is_refused() {
    let ssd = made(true);
    let pages = (0..(4 << 20) / 4096).map(Lpa);
    let mut changed = 0;
    for lpa in pages {
        let mut page = vec![0; 4096];
        ssd.read(lpa, &mut page, Structure::Other).expect("it is inside");
        if &page[..4] == b"ANOD" {
            page[32..40].fill(0xff);
            let crc = crc32c::crc32c(&page[8..]);
            page[4..8].copy_from_slice(&crc.to_le_bytes());
            ssd.write(lpa, &page, Structure::Other).expect("it is inside");
            changed += 1;
        }
    }
    assert!(changed > 0, "there are nodes");
    let mounted = AugeFs::mount(&ssd, options()).err();
    assert!(mounted.as_ref().is_some_and(|error| error.to_string().contains("of node")), "{mounted:?}");
    let Repair { after, .. } = fsck::repair(&ssd).expect("damage is a finding");
    assert!(!after.is_clean() && after.findings.len() == 1, "{:?}", after.findings);
}
