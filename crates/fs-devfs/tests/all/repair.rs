//! What the check finds of planted damage, and what a repair makes of it: one test for each finding.

use std::sync::Arc;

use amphi_device::{BlockPort, Lpa, PAGE_BYTES, Structure};
use amphi_fs_devfs::{DevFs, FormatOptions, MountOptions};
use amphi_ssd::Ssd;
use amphi_vfs::{Cred, FileSystem, FileType, Ino, WriteMode};
use amphi_volume::{Repair, Severity, Volume};

use crate::small::{self, name};

/// Where an image of 4096 pages and 100 inodes has what (docs/format/devfs.md).
const BLOCKS_MAP: u64 = 1;
const INODES_MAP: u64 = 2;
const INODE_TABLE: u64 = 4;
const NLINK: usize = 12;
const SIZE: usize = 16;
const PARENT: usize = 48;
const BLOCKS: usize = 56;
const ROOT: usize = 72;
/// Numbers of the files that [`made`] makes, and one that nobody has.
const FILE: u64 = 2;
const OTHER: u64 = 3;
const DIR: u64 = 4;
const INNER: u64 = 5;
const NOBODY: u64 = 50;

/// A file system with two files, and a directory with one more, unmounted.
fn made() -> Arc<Ssd> {
    let ssd = small::ssd(256 << 10, 16 << 20);
    let format = FormatOptions { inodes: Some(100), ..FormatOptions::default() };
    DevFs::format(&ssd, &format).expect("it can be formatted");
    let fs = DevFs::mount(&ssd, &MountOptions::default()).expect("it can be mounted");
    let file = |dir, text, ino| {
        let made = fs.create(dir, name(text), FileType::Regular, 0o644, 0, &Cred::ROOT);
        assert_eq!(made.expect("there is room").attr.ino, Ino(ino));
        assert_eq!(fs.write(Ino(ino), 0, &[ino as u8; 5000], WriteMode::default(), &Cred::ROOT), Ok(5000));
    };
    file(Ino::ROOT, "file", FILE);
    file(Ino::ROOT, "other", OTHER);
    let dir = fs.mkdir(Ino::ROOT, name("dir"), 0o755, &Cred::ROOT).expect("there is room").attr.ino;
    assert_eq!(dir, Ino(DIR));
    file(dir, "inner", INNER);
    fs.unmount().expect("it is idle");
    ssd
}

fn page(ssd: &Ssd, number: u64) -> [u8; PAGE_BYTES] {
    let mut page = [0; PAGE_BYTES];
    ssd.read(Lpa(number), &mut page, Structure::Other).expect("it is inside");
    page
}

/// Changes a metadata page, which has its checksum then.
fn edit(ssd: &Ssd, number: u64, change: impl FnOnce(&mut [u8; PAGE_BYTES])) {
    let mut page = page(ssd, number);
    change(&mut page);
    page[4092..].fill(0);
    let crc = crc32c::crc32c(&page);
    page[4092..].copy_from_slice(&crc.to_le_bytes());
    ssd.write(Lpa(number), &page, Structure::Other).expect("it is inside");
}

fn flip(ssd: &Ssd, map: u64, bit: u64) {
    edit(ssd, map, |page| page[bit as usize / 8] ^= 1 << (bit % 8));
}

fn at(ino: u64) -> usize {
    (ino as usize - 1) * 128
}

fn set(ssd: &Ssd, ino: u64, field: usize, byte: u8) {
    edit(ssd, INODE_TABLE, |page| page[at(ino) + field] = byte);
}

fn word(page: &[u8], at: usize) -> u64 {
    u32::from_le_bytes(page[at..at + 4].try_into().expect("four bytes")).into()
}

/// The number of the `index`-th block of an inode with one pointer page.
fn block(ssd: &Ssd, ino: u64, index: usize) -> u64 {
    let pointers = word(&page(ssd, INODE_TABLE), at(ino) + ROOT);
    word(&page(ssd, pointers), index * 4)
}

/// Changes an entry of the root, by the order in which names were made.
fn edit_entry(ssd: &Ssd, entry: usize, change: impl FnOnce(&mut [u8])) {
    edit(ssd, block(ssd, 1, 0), |page| change(&mut page[entry * 64..(entry + 1) * 64]));
}

fn repaired(ssd: &Arc<Ssd>) -> Repair {
    <DevFs<Ssd> as Volume<Ssd>>::repair(ssd, &mut |_| ()).expect("the SSD works")
}

/// Whether `path` holds what [`made`] wrote to `ino`.
fn holds(ssd: &Arc<Ssd>, path: &[&str], ino: u64) -> bool {
    let fs = DevFs::mount(ssd, &MountOptions::default()).expect("what was mended mounts");
    let found = path.iter().try_fold(Ino::ROOT, |dir, text| Some(fs.lookup(dir, name(text)).ok()?.attr.ino));
    let mut bytes = vec![0; 5001];
    let is_there = found.is_some_and(|found| {
        fs.read(found, 0, &mut bytes, false) == Ok(5000) && bytes[..5000] == [ino as u8; 5000]
    });
    fs.unmount().expect("it is idle");
    is_there
}

/// Damages a file system; the check must say `sentence`, and a repair leave nothing wrong.
fn mends(severity: Severity, sentence: &str, damage: impl FnOnce(&Ssd)) -> Arc<Ssd> {
    let ssd = made();
    damage(&ssd);
    let Repair { before, after } = repaired(&ssd);
    let found = before.findings.iter().any(|(bad, says)| *bad == severity && says.contains(sentence));
    assert!(found, "{sentence}: {:?}", before.findings);
    assert!(after.is_clean() && after.cleanly_unmounted, "{sentence}: {:?}", after.findings);
    assert!(repaired(&ssd).before.is_clean(), "it stays so");
    ssd
}

#[test]
fn a_number_that_is_free_and_used_is_taken() {
    let ssd = mends(Severity::Error, "is in use and its number is free", |ssd| flip(ssd, INODES_MAP, FILE));
    assert!(holds(&ssd, &["file"], FILE));
}

/// A damaged bitmap says that number 0, the root's number and the first pages are free.
#[test]
fn what_can_never_be_free_is_given_to_nobody() {
    let damage = |ssd: &Ssd| {
        (0..2).for_each(|ino| flip(ssd, INODES_MAP, ino));
        (0..3).for_each(|page| flip(ssd, BLOCKS_MAP, page));
    };
    let ssd = made();
    damage(&ssd);
    let fs = DevFs::mount(&ssd, &MountOptions::default()).expect("its inodes are sound");
    for text in ["first", "second", "third"] {
        let made = fs.create(Ino::ROOT, name(text), FileType::Regular, 0o644, 0, &Cred::ROOT);
        let ino = made.expect("there is room").attr.ino;
        assert!(ino > Ino::ROOT, "{ino:?}");
        assert_eq!(fs.write(ino, 0, &[7; 9000], WriteMode::default(), &Cred::ROOT), Ok(9000));
    }
    fs.unmount().expect("it is idle");
    assert!(holds(&ssd, &["file"], FILE));
    mends(Severity::Error, "inode 0 is in use and its number is free", damage);
}

#[test]
fn a_number_that_nobody_has_is_freed() {
    mends(Severity::Warning, "is taken, and it is not there", |ssd| flip(ssd, INODES_MAP, NOBODY));
}

#[test]
fn a_wrong_count_of_blocks_is_written_anew() {
    let ssd = mends(Severity::Warning, "counts 77 blocks and has 3", |ssd| set(ssd, FILE, BLOCKS, 77));
    assert!(holds(&ssd, &["file"], FILE));
}

#[test]
fn a_wrong_count_of_links_is_written_anew() {
    mends(Severity::Error, "counts 9 links and has 1", |ssd| set(ssd, FILE, NLINK, 9));
    mends(Severity::Error, "counts 9 links and has 2", |ssd| set(ssd, DIR, NLINK, 9));
}

#[test]
fn an_entry_that_names_nothing_goes_and_its_file_gets_another_name() {
    let ssd = mends(Severity::Error, "which is not there or of another type", |ssd| {
        edit_entry(ssd, 0, |entry| entry[0] = NOBODY as u8);
    });
    assert!(holds(&ssd, &["#2"], FILE) && !holds(&ssd, &["file"], FILE));
}

#[test]
fn a_name_that_is_there_twice_stays_once() {
    let ssd = mends(Severity::Error, "has `file` twice", |ssd| {
        edit_entry(ssd, 1, |entry| {
            entry[0] = FILE as u8;
            entry[9] = 4;
            entry[16..20].copy_from_slice(b"file");
        });
    });
    assert!(holds(&ssd, &["file"], FILE) && holds(&ssd, &["#3"], OTHER));
}

#[test]
fn a_directory_that_says_a_wrong_parent_gets_the_right_one() {
    let ssd = mends(Severity::Error, "is not where it says", |ssd| set(ssd, DIR, PARENT, 7));
    assert!(holds(&ssd, &["dir", "inner"], INNER));
}

#[test]
fn a_page_that_is_used_and_free_is_taken() {
    let ssd = mends(Severity::Error, "the bitmap says that it is free", |ssd| {
        flip(ssd, BLOCKS_MAP, block(ssd, FILE, 1));
    });
    assert!(holds(&ssd, &["file"], FILE));
}

#[test]
fn a_page_that_is_unused_and_taken_is_freed() {
    mends(Severity::Warning, "the bitmap says that it is used", |ssd| flip(ssd, BLOCKS_MAP, 4000));
}

#[test]
fn what_has_no_name_gets_one_in_the_root() {
    let ssd = mends(Severity::Warning, "has no name, and nobody will delete it", |ssd| {
        edit_entry(ssd, 0, |entry| entry.fill(0));
    });
    assert!(holds(&ssd, &["#2"], FILE));
    let ssd = mends(Severity::Warning, "has no name, and nobody will delete it", |ssd| {
        edit_entry(ssd, 2, |entry| entry.fill(0));
    });
    assert!(holds(&ssd, &["#4", "inner"], INNER));
}

#[test]
fn an_inode_that_makes_no_sense_is_cleared_and_the_others_stay() {
    let ssd = mends(Severity::Error, "too many levels", |ssd| set(ssd, FILE, 1, 9));
    assert!(!holds(&ssd, &["file"], FILE) && holds(&ssd, &["other"], OTHER));
}

#[test]
fn what_two_files_have_is_reported_and_stays() {
    let ssd = made();
    let (shared, pointers) = (block(&ssd, FILE, 0), word(&page(&ssd, INODE_TABLE), at(OTHER) + ROOT));
    edit(&ssd, pointers, |page| page[..4].copy_from_slice(&(shared as u32).to_le_bytes()));
    let Repair { before, after } = repaired(&ssd);
    let twice = |(_, says): &(Severity, String)| says.contains("which another has too");
    assert!(before.findings.iter().any(twice) && after.findings.iter().any(twice), "{:?}", after.findings);
    assert!(after.wrong() < before.wrong(), "the page that nobody has any more is freed");
}

#[test]
fn an_entry_that_makes_no_sense_goes_and_what_it_named_gets_another_name() {
    let ssd = mends(Severity::Error, "has an entry that makes no sense", |ssd| {
        edit_entry(ssd, 2, |entry| entry[8] = 99);
    });
    assert!(holds(&ssd, &["#4", "inner"], INNER));
}

#[test]
fn what_nobody_can_mount_is_reported_and_stays() {
    let ssd = made();
    ssd.write(Lpa(BLOCKS_MAP), &[7; PAGE_BYTES], Structure::Other).expect("it is inside");
    let Repair { before, after } = repaired(&ssd);
    assert_eq!((before.errors, after.errors), (1, 1));
    assert!(before.findings[0].1.contains("fails its checksum"), "{:?}", before.findings);
}

/// Damages a file system; the check must say `sentence`, and a repair leave that as it is.
fn stays(sentence: &str, damage: impl FnOnce(&Ssd)) -> Arc<Ssd> {
    let ssd = made();
    damage(&ssd);
    let Repair { before, after } = repaired(&ssd);
    let says = |(bad, says): &(Severity, String)| *bad == Severity::Error && says.contains(sentence);
    assert!(before.findings.iter().any(says), "{sentence}: {:?}", before.findings);
    assert!(after.findings.iter().any(says), "{sentence}: {:?}", after.findings);
    ssd
}

#[test]
fn a_file_that_has_a_page_which_is_no_block_is_cleared() {
    let ssd = mends(Severity::Error, "page 1: a pointer leads there, and it is no block", |ssd| {
        let pointers = word(&page(ssd, INODE_TABLE), at(OTHER) + ROOT);
        edit(ssd, pointers, |page| page[..4].copy_from_slice(&(BLOCKS_MAP as u32).to_le_bytes()));
    });
    assert!(!holds(&ssd, &["other"], OTHER) && holds(&ssd, &["file"], FILE), "the others are what they were");
}

#[test]
fn pages_of_a_directory_behind_its_end_are_reported_and_stay() {
    let ssd = stays("directory 4 has pages behind its end", |ssd| {
        edit(ssd, INODE_TABLE, |page| page[at(DIR) + SIZE..][..8].fill(0));
    });
    // What was named there has another name now.
    assert!(holds(&ssd, &["#5"], INNER) && holds(&ssd, &["file"], FILE));
}

#[test]
fn a_directory_with_two_names_is_reported_and_keeps_both() {
    stays("directory 4 has 2 names", |ssd| {
        edit(ssd, block(ssd, 1, 0), |page| {
            let kind = page[2 * 64 + 8];
            (page[64], page[64 + 8]) = (DIR as u8, kind);
        });
    });
}
