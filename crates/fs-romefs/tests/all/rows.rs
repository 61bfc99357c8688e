//! What the paper asks for, one test for each row that a single mount can show; the rest is the crash
//! laboratory's (`crates/crashlab/tests/romefs.rs`).

use std::sync::Arc;

use amphi_fs_romefs::{FormatOptions, RomeFs, fsck};
use amphi_ssd::Ssd;
use amphi_vfs::{Cred, FileSystem, FileType, Ino, WriteMode};

use crate::small::{cramped, make, name, remount, roomy};

const BLOCK: usize = 64 << 10;

fn make_roomy() -> RomeFs<Ssd> {
    make(&FormatOptions::default(), 16 << 20, roomy())
}

fn file(fs: &RomeFs<Ssd>, text: &str) -> Ino {
    let made = fs.create(Ino::ROOT, name(text), FileType::Regular, 0o644, 0, &Cred::ROOT);
    made.expect("it can be created").attr.ino
}

fn write(fs: &RomeFs<Ssd>, ino: Ino, offset: usize, data: &[u8]) {
    let written = fs.write(ino, offset as u64, data, WriteMode::default(), &Cred::ROOT);
    assert_eq!(written, Ok(data.len()));
}

fn read(fs: &RomeFs<Ssd>, ino: Ino, offset: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    assert_eq!(fs.read(ino, offset as u64, &mut bytes, false), Ok(len));
    bytes
}

/// Pages that `body` reads and writes by the block port.
fn by_blocks(fs: &RomeFs<Ssd>, body: impl FnOnce()) -> (u64, u64) {
    let before = fs.device().stats();
    body();
    let after = fs.device().stats();
    (
        (after.block_read.bytes() - before.block_read.bytes()) / 4096,
        (after.block_write.bytes() - before.block_write.bytes()) / 4096,
    )
}

fn assert_clean(fs: RomeFs<Ssd>) -> Arc<Ssd> {
    let ssd = Arc::clone(fs.device());
    fs.unmount().expect("an idle file system unmounts");
    let report = fsck::check(&ssd).expect("it can be checked");
    assert_eq!(report.findings, []);
    ssd
}

#[test]
fn metadata_are_in_the_memory_zone_alone() {
    let fs = make_roomy();
    let traffic = by_blocks(&fs, || {
        for number in 0..200 {
            file(&fs, &format!("file-{number}"));
        }
        for number in 0..100 {
            fs.unlink(Ino::ROOT, name(&format!("file-{number}"))).expect("it is there");
        }
    });
    assert_eq!(traffic, (0, 0));
    assert_clean(fs);
}

#[test]
fn a_checkpoint_brings_what_the_journal_had_to_the_metadata_area() {
    let fs = make_roomy();
    for number in 0..100 {
        file(&fs, &format!("file-{number}"));
    }
    // Unmounting makes a checkpoint.
    let ssd = assert_clean(fs);
    assert_eq!(fsck::check(&ssd).expect("it can be checked").transactions, 0, "nothing is left to apply");
    let fs = RomeFs::mount(&ssd, roomy()).expect("it can be mounted");
    for number in 0..100 {
        fs.lookup(Ino::ROOT, name(&format!("file-{number}"))).expect("it is there");
    }
}

#[test]
fn aligned_parts_of_a_write_go_by_blocks_and_the_rest_by_bytes() {
    let fs = make_roomy();
    let ino = file(&fs, "file");
    let data: Vec<_> = (0..4 * BLOCK).map(|byte| (byte % 253) as u8).collect();
    let (_, pages) = by_blocks(&fs, || write(&fs, ino, 100, &data));
    assert_eq!(pages, 3 * 16, "three whole blocks");
    let stats = fs.stats();
    assert_eq!((stats.block_bytes, stats.log_bytes), (3 * BLOCK as u64, BLOCK as u64));
    assert_eq!((stats.split_to_blocks, stats.split_to_memory), (3 * BLOCK as u64, BLOCK as u64));
    assert_eq!(by_blocks(&fs, || write(&fs, ino, 5000, &data[..BLOCK])).1, 0, "no block is whole");
    assert_eq!(read(&fs, ino, 100, 10), data[..10]);
}

#[test]
fn a_leaf_without_a_free_entry_has_its_block_written_back() {
    let fs = make_roomy();
    let ino = file(&fs, "file");
    write(&fs, ino, 0, &[1; BLOCK]);
    for log in 0..16 {
        write(&fs, ino, log * 200, &[2; 100]);
    }
    assert_eq!(fs.stats().write_backs, 0, "a leaf has 16 entries");
    let traffic = by_blocks(&fs, || write(&fs, ino, 16 * 200, &[2; 100]));
    assert_eq!((fs.stats().write_backs, traffic), (1, (16, 16)), "the block is read, and written");
    let mut wanted = vec![1; BLOCK];
    (0..17).for_each(|log| wanted[log * 200..log * 200 + 100].fill(2));
    assert!(read(&fs, ino, 0, BLOCK) == wanted);
    assert_clean(fs);
}

#[test]
fn what_the_logs_have_in_full_ends_the_search() {
    let fs = make_roomy();
    let ino = file(&fs, "file");
    write(&fs, ino, 0, &[1; BLOCK]);
    write(&fs, ino, 4096, &[2; 4096]);
    let ended = fs.stats().ended_early;
    let traffic = by_blocks(&fs, || assert_eq!(read(&fs, ino, 5000, 3000), [2; 3000]));
    assert_eq!((traffic, fs.stats().ended_early), ((0, 0), ended + 1));
    assert_eq!(fs.stats().slots_spared, 1, "the radix tree was not asked");
    // Of a page that is half a log, the block is read for the other half, and nothing stale is seen.
    assert_eq!(read(&fs, ino, 4000, 200)[..96], [1; 96]);
    assert_eq!(read(&fs, ino, 4000, 200)[96..], [2; 104]);
}

#[test]
fn logs_that_overlap_are_merged_and_appends_stay_in_their_page() {
    let fs = make_roomy();
    let ino = file(&fs, "file");
    write(&fs, ino, 0, &[1; 1000]);
    write(&fs, ino, 1000, &[2; 1000]);
    assert_eq!(fs.stats().merges, 0, "an append goes into the same page");
    write(&fs, ino, 500, &[3; 1000]);
    assert_eq!(fs.stats().merges, 1);
    let wanted = [vec![1; 500], vec![3; 1000], vec![2; 500]].concat();
    assert_eq!(read(&fs, ino, 0, 2000), wanted);
    assert_eq!(fs.getattr(ino).expect("it is there").blocks, 8, "one log page");
    let fs = remount(fs, roomy());
    assert_eq!(read(&fs, ino, 0, 2000), wanted);
}

#[test]
fn what_was_read_by_blocks_is_kept() {
    let fs = make_roomy();
    let ino = file(&fs, "file");
    write(&fs, ino, 0, &[1; BLOCK]);
    assert_eq!(by_blocks(&fs, || drop(read(&fs, ino, 0, BLOCK))).0, 16);
    assert_eq!(by_blocks(&fs, || drop(read(&fs, ino, 100, 9000))).0, 0, "they are in host memory");
    let mut bytes = vec![0; 4096];
    let direct = by_blocks(&fs, || drop(fs.read(ino, 0, &mut bytes, true)));
    assert_eq!(direct.0, 1, "direct reads pass host memory by");
    write(&fs, ino, 0, &[2; BLOCK]);
    assert_eq!(read(&fs, ino, 100, 10), [2; 10]);
}

#[test]
fn what_was_acknowledged_is_there_without_an_unmount() {
    let fs = make_roomy();
    let ino = file(&fs, "file");
    write(&fs, ino, 100, &[7; 100_000]);
    fs.mkdir(Ino::ROOT, name("dir"), 0o755, &Cred::ROOT).expect("it can be made");
    let ssd = Arc::clone(fs.device());
    drop(fs);
    let fs = RomeFs::mount(&ssd, roomy()).expect("it can be mounted");
    assert!(fs.recovered().applied > 0);
    assert!(read(&fs, ino, 100, 100_000) == [7; 100_000]);
    fs.lookup(Ino::ROOT, name("dir")).expect("it is there");
    drop(fs);
    assert_eq!(fsck::check(&ssd).expect("it can be checked").findings, []);
}

#[test]
fn a_small_memory_zone_is_enough() {
    let format = FormatOptions { inodes: Some(64), ..FormatOptions::default() };
    // Some 250 log pages against 16 MB of data that are written over in small pieces.
    let fs = make(&format, 2 << 20, cramped());
    let ino = file(&fs, "file");
    let mut wanted = vec![0; 16 << 20];
    let mut dice = amphi_rt::random::Generator::new(7);
    for round in 0..4000_u32 {
        let at = dice.below(wanted.len() as u64 - 20_000) as usize;
        let len = 1 + dice.below(20_000) as usize;
        let data = vec![round as u8; len];
        write(&fs, ino, at, &data);
        wanted[at..at + len].copy_from_slice(&data);
    }
    assert!(fs.stats().write_backs > 100, "{:?}", fs.stats());
    let size = fs.getattr(ino).expect("it is there").size as usize;
    assert!(read(&fs, ino, 0, size) == wanted[..size]);
    let fs = remount(fs, cramped());
    assert!(read(&fs, ino, 0, size) == wanted[..size]);
    assert_clean(fs);
}
