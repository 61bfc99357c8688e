//! Whatever the device holds, mounting, using and checking it ends in an answer or an error: no panic, no
//! loop, no memory without bounds. `AMPHI_SEED` replays one case.

use std::sync::Arc;

use amphi_conformance::damaged;
use amphi_device::{BlockPort, Lpa, Structure};
use amphi_fs_f2fslike::{F2fsLike, MountError};
use amphi_rt::random::Generator;
use amphi_ssd::Ssd;
use amphi_vfs::{Cred, FileSystem, FileType, Ino, Name, WriteMode};
use amphi_volume::{FormatOptions, MountOptions, Volume};

use crate::small;

type F2fs = F2fsLike<Ssd>;

const DEVICE: u64 = 4 << 20;
const PAGE: u64 = 4096;
/// Where in an inode's node it is said what it is.
const RECORD: usize = 64 + 904 * 4;

/// A file system with one of everything, after a crash or an unmount.
fn made(crashed: bool) -> Arc<Ssd> {
    let ssd = small::ssd(DEVICE);
    <F2fs as Volume<Ssd>>::format(&ssd, &FormatOptions::default()).expect("it can be made");
    let fs = small::mount(&ssd, 100, false);
    let large = damaged::one_of_everything(&fs, 4000, |put| {
        put(0, &vec![2; 100_000]);
        put(100 << 20, &[3; 5000]);
    });
    fs.fsync(large, false).expect("memory does not fail");
    fs.sync().expect("memory does not fail");
    if crashed {
        drop(fs)
    } else {
        fs.unmount().expect("it is idle")
    }
    ssd
}

/// Puts a checksum right, where the block that is changed has one in the house's place, so that what is said
/// is believed.
fn reseal(page: &mut [u8]) {
    let crc = crc32c::crc32c(&page[8..]);
    page[4..8].copy_from_slice(&crc.to_le_bytes());
}

fn run(seed: u64) {
    let mut dice = Generator::new(seed);
    let ssd = made(dice.below(2) == 0);
    for _ in 0..=dice.below(6) {
        let lpa = Lpa(dice.below(DEVICE / PAGE));
        let mut page = vec![0; PAGE as usize];
        ssd.read(lpa, &mut page, Structure::Other).expect("it is inside");
        if page.iter().all(|byte| *byte == 0) {
            continue;
        }
        let at = [dice.below(512), dice.below(16), 452 + dice.below(60)][dice.below(3) as usize] as usize * 8;
        let old = u64::from_le_bytes(page[at..at + 8].try_into().expect("8 bytes"));
        let word = match dice.below(5) {
            0 => 0,
            1 => u64::MAX,
            2 => dice.below(600),
            3 => old ^ 1 << dice.below(64),
            _ => dice.next(),
        };
        page[at..at + 8].copy_from_slice(&word.to_le_bytes());
        if lpa.0 > 0 && dice.below(4) > 0 {
            reseal(&mut page);
        }
        ssd.write(lpa, &page, Structure::Other).expect("it is inside");
    }
    let _any = <F2fs as Volume<Ssd>>::check(&ssd, &mut |_| {});
    if let Ok(fs) = <F2fs as Volume<Ssd>>::mount(&ssd, &MountOptions::default()) {
        damaged::use_all(&fs, (100 << 20) - 100);
        let _any = fs.unmount();
    }
    let _any = <F2fs as Volume<Ssd>>::check(&ssd, &mut |_| {});
}

/// What a checkpoint says in its journals, as words of its head: how many entries, where they are, of how
/// many bytes.
const NAT: (usize, usize, usize) = (348, 356, 8);
const SIT: (usize, usize, usize) = (352, 660, 72);

/// Changes the head of the last checkpoint of a file system that was not unmounted.
fn with_pack(change: impl FnOnce(&mut [u8])) -> Arc<Ssd> {
    let ssd = made(true);
    let fs = small::mount(&ssd, 100, false);
    let name = Name::new(b"more").expect("a valid name");
    let more = fs.create(Ino::ROOT, name, FileType::Regular, 0o644, 0, &Cred::ROOT).expect("there is room");
    fs.write(more.attr.ino, 0, &[1], WriteMode::default(), &Cred::ROOT).expect("there is room");
    fs.sync().expect("memory does not fail");
    drop(fs);
    let mut packs: Vec<_> = [1, 12].map(|first| (first, vec![0; 3 * PAGE as usize])).into();
    for (first, pages) in &mut packs {
        ssd.read(Lpa(*first), pages, Structure::Other).expect("it is inside");
    }
    let (first, mut pages) = packs.into_iter().max_by_key(|(_, pages)| pages[16]).expect("there are two");
    change(&mut pages);
    reseal(&mut pages);
    ssd.write(Lpa(first), &pages, Structure::Other).expect("it is inside");
    ssd
}

fn word(pages: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(pages[at..at + 4].try_into().expect("4 bytes"))
}

#[test]
fn what_a_journal_says_is_checked() {
    type Change = fn(&mut [u8]);
    let put = |pages: &mut [u8], at: usize, word: u32| pages[at..at + 4].copy_from_slice(&word.to_le_bytes());
    for journal in [NAT, SIT] {
        let (count, first, size) = journal;
        with_pack(|pages| assert!(word(pages, count) > 1, "there are entries"));
        for number in [u32::MAX, 1 << 20] {
            refused(&with_pack(|pages| put(pages, first, number)));
        }
        refused(&with_pack(|pages| put(pages, first, word(pages, first + size))));
    }
    let wrong: [Change; 3] = [
        |pages| pages[NAT.1..NAT.1 + 4].fill(0),
        |pages| pages[NAT.1 + 4..NAT.1 + 8].fill(0xf0),
        |pages| pages[SIT.1 + 4] = 3,
    ];
    wrong.into_iter().for_each(|change| refused(&with_pack(change)));
}

/// Neither mounted nor checked as sound, in words of what the checkpoint says.
fn refused(ssd: &Arc<Ssd>) {
    let report = <F2fs as Volume<Ssd>>::check(ssd, &mut |_| {}).expect("damage is a finding");
    assert!(report.errors > 0 && report.findings[0].1.contains("says of"), "{:?}", report.findings);
    let mounted = <F2fs as Volume<Ssd>>::mount(ssd, &MountOptions::default()).err();
    assert!(matches!(mounted, Some(MountError::Damaged(_))), "{mounted:?}");
}

/// Entries that a journal has and should not, and should have and has not, are found.
#[test]
fn a_check_finds_what_a_journal_lacks() {
    for (count, ..) in [NAT, SIT] {
        let ssd = with_pack(|pages| pages[count] = 0);
        let report = <F2fs as Volume<Ssd>>::check(&ssd, &mut |_| {}).expect("damage is a finding");
        assert!(report.errors > 0, "{:?}", report.findings);
    }
    let ssd = with_pack(|pages| pages[NAT.0] = 39);
    let report = <F2fs as Volume<Ssd>>::check(&ssd, &mut |_| {}).expect("the checkpoint before is there");
    assert_eq!((report.files, report.errors), (2, 0), "the one before counts: {:?}", report.findings);
}

/// Entries in a directory's inode are checked as those in blocks are.
#[test]
fn a_check_finds_damaged_entries_in_an_inode() {
    let ssd = made(false);
    let clean = <F2fs as Volume<Ssd>>::check(&ssd, &mut |_| {}).expect("it can be checked");
    assert_eq!((clean.errors, clean.warnings), (0, 0), "{:?}", clean.findings);
    let mut changed = 0;
    for lpa in (0..DEVICE / PAGE).map(Lpa) {
        let mut page = vec![0; PAGE as usize];
        ssd.read(lpa, &mut page, Structure::Other).expect("it is inside");
        // A directory's own node, with an entry: another inode's number in its first slot.
        if &page[..4] == b"ANOD" && page[60..64] == [0xff; 4] && page[RECORD] == 2 && page[64] & 1 == 1 {
            page[64 + 36 + 4..64 + 36 + 8].fill(0xff);
            reseal(&mut page);
            ssd.write(lpa, &page, Structure::Other).expect("it is inside");
            changed += 1;
        }
    }
    assert!(changed > 0, "there are directories with entries in their inodes");
    let report = <F2fs as Volume<Ssd>>::check(&ssd, &mut |_| {}).expect("damage is a finding");
    assert!(report.errors > 0, "{:?}", report.findings);
    assert!(report.findings.iter().any(|(_, what)| what.contains("has no sense")), "{:?}", report.findings);
}

/// Recovery goes on with the numbers of the nodes that an `fsync` wrote.
#[test]
fn a_node_of_an_fsync_with_the_last_number_is_refused() {
    let ssd = made(true);
    let fs = small::mount(&ssd, 100, false);
    let name = Name::new(b"late").expect("a valid name");
    let late = fs.create(Ino::ROOT, name, FileType::Regular, 0o644, 0, &Cred::ROOT).expect("there is room");
    fs.fsync(late.attr.ino, false).expect("memory does not fail");
    drop(fs);
    for lpa in (0..DEVICE / PAGE).map(Lpa) {
        let mut page = vec![0; PAGE as usize];
        ssd.read(lpa, &mut page, Structure::Other).expect("it is inside");
        if &page[..4] == b"ANOD" && page[18] > 0 {
            page[32..40].fill(0xff);
            reseal(&mut page);
            ssd.write(lpa, &page, Structure::Other).expect("it is inside");
        }
    }
    let mounted = <F2fs as Volume<Ssd>>::mount(&ssd, &MountOptions::default()).err();
    assert!(mounted.as_ref().is_some_and(|error| error.to_string().contains("node")), "{mounted:?}");
    let report = <F2fs as Volume<Ssd>>::check(&ssd, &mut |_| {}).expect("damage is a finding");
    assert!(report.errors > 0, "{:?}", report.findings);
}

/// An image of the version before is not read, and said to be one.
#[test]
fn a_version_before_is_refused() {
    let ssd = made(false);
    let mut page = vec![0; PAGE as usize];
    ssd.read(Lpa(0), &mut page, Structure::Other).expect("it is inside");
    page[8] = 1;
    let crc = crc32c::crc32c(&page[..92]);
    page[92..96].copy_from_slice(&crc.to_le_bytes());
    ssd.write(Lpa(0), &page, Structure::Other).expect("it is inside");
    let refused = <F2fs as Volume<Ssd>>::mount(&ssd, &MountOptions::default()).err().expect("it is refused");
    assert!(refused.to_string().contains("version 1"), "{refused}");
}

#[test]
fn damaged_images_are_answered_or_refused() {
    damaged::each_seed("amphi-fs-f2fslike", 300, 20_000, run);
}
