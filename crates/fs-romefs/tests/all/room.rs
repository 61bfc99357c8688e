//! What happens while the memory zone runs short of room (RO-8): which data blocks are written back, by whom,
//! how many at a time, and that nothing else runs out before log pages do.

use std::sync::Arc;

use amphi_fs_romefs::{FormatOptions, MountOptions, RomeFs, fsck};
use amphi_rt::{Sim, time};
use amphi_ssd::{OpenOptions, Profile, Ssd};
use amphi_vfs::{Cred, Error, FileSystem, FileType, Ino, Name, WriteMode};

use crate::small::{self, make, roomy};

const BLOCK: u64 = 64 << 10;

fn format() -> FormatOptions {
    FormatOptions { inodes: Some(64), ..FormatOptions::default() }
}

/// A file of so many data blocks, all of them in the block zone.
fn file(fs: &RomeFs<Ssd>, blocks: u64) -> Ino {
    let name = Name::new(b"file").expect("a valid name");
    let made = fs.create(Ino::ROOT, name, FileType::Regular, 0o644, 0, &Cred::ROOT);
    let ino = made.expect("it can be created").attr.ino;
    let block = vec![1; BLOCK as usize];
    (0..blocks).for_each(|number| write(fs, ino, number * BLOCK, &block));
    ino
}

fn write(fs: &RomeFs<Ssd>, ino: Ino, offset: u64, data: &[u8]) {
    let written = fs.write(ino, offset, data, WriteMode::default(), &Cred::ROOT);
    assert_eq!(written, Ok(data.len()));
}

/// Whether the memory zone has these bytes.
fn in_logs(fs: &RomeFs<Ssd>, ino: Ino, offset: u64, len: usize) -> bool {
    let before = fs.stats().ended_early;
    let mut bytes = vec![0; len];
    assert_eq!(fs.read(ino, offset, &mut bytes, false), Ok(len));
    fs.stats().ended_early > before
}

fn assert_clean(fs: RomeFs<Ssd>) {
    let ssd = Arc::clone(fs.device());
    fs.unmount().expect("an idle file system unmounts");
    assert_eq!(fsck::check(&ssd).expect("it can be checked").findings, []);
}

#[test]
fn leaves_do_not_run_out_before_log_pages_do() {
    let fs = make(&format(), 2 << 20, roomy());
    let pages = fs.info().log_bytes / 4096;
    let ino = file(&fs, pages);
    // One log a block takes as many leaves as log pages.
    (0..pages * 9 / 10).for_each(|block| write(&fs, ino, block * BLOCK + 100, &[2; 100]));
    assert_eq!(fs.stats().write_backs, 0, "of {pages} log pages a tenth are free");
    assert_clean(fs);
}

#[test]
fn a_writer_that_finds_hardly_a_page_has_the_block_with_the_most_logs_written_back() {
    let fs = make(&format(), 2 << 20, roomy());
    let pages = fs.info().log_bytes / 4096;
    let ino = file(&fs, pages + 40);
    let crowded = 7;
    (0..12).for_each(|log| write(&fs, ino, crowded * BLOCK + log * 5000, &[3; 100]));
    let mut block = crowded;
    while fs.stats().write_backs == 0 {
        block += 1;
        assert!(block < pages + 40, "of {pages} log pages some must run short");
        assert!(in_logs(&fs, ino, crowded * BLOCK, 100));
        write(&fs, ino, block * BLOCK + 100, &[2; 100]);
    }
    assert!(in_logs(&fs, ino, block * BLOCK + 100, 100), "what was written is not written again");
    assert!(!in_logs(&fs, ino, crowded * BLOCK, 100), "twelve pages are free for one block that was written");
    assert_clean(fs);
}

/// What a file holds, in full.
fn contents(fs: &RomeFs<Ssd>, ino: Ino) -> Vec<u8> {
    let mut bytes = vec![0; fs.getattr(ino).expect("it is there").size as usize];
    assert_eq!(fs.read(ino, 0, &mut bytes, false), Ok(bytes.len()));
    bytes
}

#[test]
fn a_full_block_zone_leaves_whole_blocks_to_the_memory_zone_until_both_are_full() {
    let blocks = 32;
    let fs = make(&FormatOptions { bytes: Some(blocks * BLOCK), ..format() }, 2 << 20, roomy());
    let spare = fs.create(
        Ino::ROOT,
        Name::new(b"spare").expect("a valid name"),
        FileType::Regular,
        0o644,
        0,
        &Cred::ROOT,
    );
    let spare = spare.expect("it can be created").attr.ino;
    write(&fs, spare, 0, &[9; BLOCK as usize]);
    let ino = file(&fs, blocks - 1);
    let by_blocks = fs.stats().block_bytes;
    write(&fs, ino, (blocks - 1) * BLOCK, &[2; BLOCK as usize]);
    assert_eq!(fs.stats().block_bytes, by_blocks, "a whole block goes by bytes: none is free");
    // Until both zones are full.
    let mut block = blocks;
    let refused = loop {
        let before = contents(&fs, ino);
        let (at, data) = (block * BLOCK, vec![3; BLOCK as usize]);
        match fs.write(ino, at, &data, WriteMode::default(), &Cred::ROOT) {
            Ok(written) => assert_eq!(written, data.len()),
            Err(error) => break (error, before),
        }
        block += 1;
        assert!(block < 200, "2 MB of memory hold no 168 blocks");
    };
    assert_eq!(refused.0, Error::NoSpace);
    assert!(contents(&fs, ino) == refused.1, "what was refused has changed nothing");
    // An overwrite of several blocks is refused as a whole, or there as a whole.
    let outcome = fs.write(ino, BLOCK / 2, &vec![4; 3 * BLOCK as usize], WriteMode::default(), &Cred::ROOT);
    let mut wanted = refused.1;
    match outcome {
        Ok(written) => wanted[BLOCK as usize / 2..][..written].fill(4),
        Err(error) => assert_eq!(error, Error::NoSpace),
    }
    assert!(contents(&fs, ino) == wanted);
    // Names and removal need no room that is gone, and what is removed can be written again.
    fs.unlink(Ino::ROOT, Name::new(b"spare").expect("a valid name")).expect("it is there");
    fs.forget(spare, 1);
    write(&fs, ino, 0, &[5; BLOCK as usize]);
    wanted[..BLOCK as usize].fill(5);
    assert!(contents(&fs, ino) == wanted);
    let fs = small::remount(fs, roomy());
    assert!(contents(&fs, ino) == wanted);
    assert_clean(fs);
}

/// Virtual time on the SSD of the paper: one task alone would take as long as the blocks one after the other.
#[test]
fn blocks_are_written_back_beside_each_other() {
    Sim::new(1).run(|| {
        let mut profile = Profile::named("romefs-a").expect("the profile exists");
        profile.firmware.memory_bytes = 2 << 20;
        profile.log.region_bytes = 2 << 20;
        let ssd = Ssd::try_in_memory(&profile, 128 << 20, &OpenOptions::default());
        let ssd = Arc::new(ssd.expect("an SSD in memory"));
        RomeFs::format(&ssd, &format()).expect("the SSD can be formatted");
        let fs = RomeFs::mount(&ssd, MountOptions::default()).expect("it can be mounted");
        let pages = fs.info().log_bytes / 4096;
        let ino = file(&fs, pages);
        (0..16).for_each(|log| write(&fs, ino, log * 200, &[2; 100]));
        let begun = time::now_ns();
        write(&fs, ino, 16 * 200, &[2; 100]);
        let alone_ns = time::now_ns() - begun;
        assert_eq!(fs.stats().write_backs, 1, "a leaf has 16 entries");
        let mut block = 1;
        while fs.stats().write_backs == 1 {
            write(&fs, ino, block * BLOCK + 100, &[2; 100]);
            block += 1;
        }
        // The background task has begun; it goes on until there is room again.
        let (begun, mut done, mut ended) = (time::now_ns(), fs.stats().write_backs, time::now_ns());
        while time::now_ns() - ended < 10 * alone_ns {
            time::sleep_ns(alone_ns / 10);
            if fs.stats().write_backs > done {
                (done, ended) = (fs.stats().write_backs, time::now_ns());
            }
        }
        let one_after_the_other = (done - 1) * alone_ns;
        assert!(done > 8, "{done} blocks were written back");
        assert!(
            (ended - begun) * 2 < one_after_the_other,
            "{done} blocks in {} ns, one takes {alone_ns} ns",
            ended - begun
        );
        assert_clean(fs);
    });
}
