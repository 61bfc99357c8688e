//! What the paper asks for, as far as a single mount can show it; the rest is seen where the power fails
//! (`cuts.rs`).

use std::collections::BTreeSet;

use amphi_device::{BlockPort, BytePortExt, Device, Lpa, Structure};
use amphi_fs_augefs::{AugeFs, FormatOptions, MountOptions};
use amphi_rt::Sim;
use amphi_rt::time::now_ns;
use amphi_ssd::Ssd;
use amphi_vfs::{Cred, FileSystem, FileType, Ino, RenameMode, SetAttr, WriteMode, XattrMode};

use crate::small::{self, crash, fine, make, name, remount, roomy};

fn make_roomy() -> AugeFs<Ssd> {
    make(&FormatOptions { meta_pages: Some(4096), ..fine() }, 64 << 20, roomy())
}

fn file(fs: &AugeFs<Ssd>, text: &str) -> Ino {
    let made = fs.create(Ino::ROOT, name(text), FileType::Regular, 0o644, 0, &Cred::ROOT);
    made.expect("it can be created").attr.ino
}

fn write(fs: &AugeFs<Ssd>, ino: Ino, offset: u64, data: &[u8]) {
    assert_eq!(fs.write(ino, offset, data, WriteMode::default(), &Cred::ROOT), Ok(data.len()));
}

fn read(fs: &AugeFs<Ssd>, ino: Ino, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    assert_eq!(fs.read(ino, offset, &mut bytes, false), Ok(len));
    bytes
}

/// Pages that `body` reads and writes by the block port.
fn by_blocks(fs: &AugeFs<Ssd>, body: impl FnOnce()) -> (u64, u64) {
    let before = fs.device().stats();
    body();
    let after = fs.device().stats();
    (
        (after.block_read.bytes() - before.block_read.bytes()) / 4096,
        (after.block_write.bytes() - before.block_write.bytes()) / 4096,
    )
}

/// Direct reads are the device's, what is cached or dirty included; they leave no page in memory.
#[test]
fn direct_reads_are_the_devices() {
    let fs = make_roomy();
    let ino = file(&fs, "f");
    write(&fs, ino, 0, &[1; 64 << 10]);
    let mut bytes = vec![0; 16 << 10];
    let mut direct = |fs: &AugeFs<Ssd>, at: u64, expected: u8| {
        let traffic = by_blocks(fs, || assert_eq!(fs.read(ino, at, &mut bytes, true), Ok(16 << 10)));
        assert!(bytes.iter().all(|byte| *byte == expected), "{expected} at {at}");
        traffic
    };
    let (pages, written) = direct(&fs, 4096, 1);
    assert!(pages >= 4 && written >= 16, "what was dirty is written, then read: {pages}, {written}");
    assert_eq!(direct(&fs, 4096, 1), (4, 0), "and read again");
    assert_eq!(direct(&fs, 100, 1), (5, 0), "whole pages around");
    let fs = remount(fs, roomy());
    direct(&fs, 0, 1);
    assert_eq!(direct(&fs, 0, 1), (4, 0));
    assert_eq!(
        by_blocks(&fs, || assert_eq!(read(&fs, ino, 8192, 4096), [1; 4096])),
        (1, 0),
        "it is not kept"
    );
    write(&fs, ino, 0, &[2; 16 << 10]);
    direct(&fs, 0, 2);
}

/// Who reads in order has up to 128 KB read ahead, by one command where blocks are in a row.
#[test]
fn reads_in_order_are_few_commands() {
    let fs = make_roomy();
    let ino = file(&fs, "f");
    let bytes: Vec<u8> = (0..1 << 20).map(|at: u32| (at / 4096) as u8).collect();
    write(&fs, ino, 0, &bytes);
    let fs = remount(fs, roomy());
    let before = fs.device().stats().block_read.commands();
    for at in (0..bytes.len()).step_by(4096) {
        assert_eq!(read(&fs, ino, at as u64, 4096), bytes[at..at + 4096]);
    }
    let commands = fs.device().stats().block_read.commands() - before;
    assert!((8..24).contains(&commands), "{commands} commands for 256 pages");
}

#[test]
fn changes_of_names_are_records_of_the_metadata_store_alone() {
    let fs = make_roomy();
    fs.getattr(Ino::ROOT).expect("it is in memory from now on");
    let traffic = by_blocks(&fs, || {
        for number in 0..100 {
            file(&fs, &format!("file-{number}"));
        }
        for number in 0..50 {
            let (from, to) = (format!("file-{number}"), format!("moved-{number}"));
            fs.rename(Ino::ROOT, name(&from), Ino::ROOT, name(&to), RenameMode::Replace)
                .expect("it is there");
            fs.unlink(Ino::ROOT, name(&format!("file-{}", 50 + number))).expect("it is there");
        }
    });
    assert_eq!(traffic, (0, 0), "the store's log is in the memory area");
    let fs = crash(fs, roomy());
    let mut listed = BTreeSet::new();
    fs.readdir(Ino::ROOT, 0, &mut |entry| listed.insert(entry.name.to_vec())).expect("it is a directory");
    let wanted = (0..50).map(|number| format!("moved-{number}").into_bytes());
    assert_eq!(listed, wanted.chain([b".".to_vec(), b"..".to_vec()]).collect());
}

#[test]
fn an_inode_is_found_by_each_of_its_names_and_by_number() {
    let fs = make_roomy();
    let ino = file(&fs, "one");
    let dir = fs.mkdir(Ino::ROOT, name("dir"), 0o755, &Cred::ROOT).expect("there is room").attr.ino;
    write(&fs, ino, 0, b"contents");
    fs.fsync(ino, false).expect("the device works");
    fs.link(ino, dir, name("two")).expect("it can have another name");
    let fs = crash(fs, roomy());
    let by_number = fs.reference(ino).expect("it is there").attr;
    assert_eq!(by_number.nlink, 2);
    let modes = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    fs.setattr(ino, &modes, &Cred::ROOT).expect("it is there");
    fs.unlink(Ino::ROOT, name("one")).expect("it is there");
    fs.rename(Ino::ROOT, name("dir"), Ino::ROOT, name("moved"), RenameMode::Replace).expect("it is there");
    let fs = crash(fs, roomy());
    let moved = fs.lookup(Ino::ROOT, name("moved")).expect("it is there").attr.ino;
    let found = fs.lookup(moved, name("two")).expect("it moved with its directory").attr;
    assert_eq!((found.ino, found.nlink, found.mode), (ino, 1, 0o600));
    assert_eq!(read(&fs, ino, 0, 8), b"contents");
}

#[test]
fn renaming_a_directory_changes_as_much_as_renaming_a_file() {
    let fs = make_roomy();
    let dir = fs.mkdir(Ino::ROOT, name("dir"), 0o755, &Cred::ROOT).expect("there is room").attr.ino;
    for number in 0..1000 {
        let text = format!("file-{number}");
        fs.create(dir, name(&text), FileType::Regular, 0o644, 0, &Cred::ROOT).expect("there is room");
    }
    let ino = file(&fs, "fil");
    let stored = |body: &dyn Fn()| {
        let before = fs.device().stats().byte_write.bytes();
        body();
        fs.device().stats().byte_write.bytes() - before
    };
    let rename = |from: &str, to: &str| {
        fs.rename(Ino::ROOT, name(from), Ino::ROOT, name(to), RenameMode::Replace).expect("it is there");
    };
    let of_file = stored(&|| rename("fil", "lif"));
    let of_dir = stored(&|| rename("dir", "rid"));
    assert_eq!(of_dir, of_file);
    fs.forget(ino, 1);
}

#[test]
fn what_a_deleted_file_had_goes_with_it() {
    let fs = make_roomy();
    for text in ["read", "unread"] {
        fs.setxattr(file(&fs, text), b"user.a", b"value", XattrMode::Set).expect("there is room");
    }
    let fs = remount(fs, roomy());
    let ino = fs.lookup(Ino::ROOT, name("read")).expect("it is there").attr.ino;
    assert_eq!(fs.getxattr(ino, b"user.a"), Ok(b"value".to_vec()));
    fs.forget(ino, 1);
    // One's attributes are in memory, the other's are not.
    for text in ["read", "unread"] {
        fs.unlink(Ino::ROOT, name(text)).expect("it is there");
    }
    // 221 B: its entry, its number, its directory's inode. Deletions of attributes and of an orphan's mark
    // that it never had would make it 257 B, a line more.
    let stored_by = |text: &str| {
        fs.forget(file(&fs, text), 1);
        let before = fs.device().stats().byte_write.bytes();
        fs.unlink(Ino::ROOT, name(text)).expect("it is there");
        fs.device().stats().byte_write.bytes() - before
    };
    assert_eq!(stored_by("plain"), 4 * 64);
    small::assert_clean(fs);
}

#[test]
fn files_are_of_different_domains_each_with_segments_of_its_own() {
    let fs = make_roomy();
    for number in 0..64 {
        let ino = file(&fs, &format!("file-{number}"));
        write(&fs, ino, 0, &[number; 5000]);
        fs.fsync(ino, false).expect("the device works");
    }
    let owners = fs.segments_by_domain();
    assert_eq!(owners.len(), 4, "64 files are in all four domains");
    let all: Vec<_> = owners.iter().flatten().collect();
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "no segment has two owners");
    assert!(owners.iter().all(|segments| segments.len() >= 2), "a log of data and one of nodes: {owners:?}");
    let fs = remount(fs, roomy());
    assert_eq!(fs.segments_by_domain(), owners);
}

#[test]
fn data_and_nodes_are_submitted_together() {
    Sim::new(1).run(|| {
        let ssd = small::timed(1 << 20, 64 << 20);
        AugeFs::format(&ssd, &FormatOptions { meta_pages: Some(4096), ..fine() }).expect("it fits");
        let fs = AugeFs::mount(&ssd, roomy()).expect("it was just made");
        let time = |body: &dyn Fn()| {
            let before = now_ns();
            body();
            now_ns() - before
        };
        let ino = file(&fs, "file");
        for value in 0..2 {
            write(&fs, ino, 0, &[value; 4096]);
            fs.fsync(ino, true).expect("the device works");
        }
        write(&fs, ino, 0, &[2; 4096]);
        let fsync = time(&|| fs.fsync(ino, true).expect("the device works"));
        let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        let inode = time(&|| assert!(fs.setattr(ino, &mode, &Cred::ROOT).is_ok()));
        let page = Lpa(ssd.capacity_pages() - 1);
        let one = time(&|| ssd.write(page, &[0; 4096], Structure::Other).expect("the device works"));
        let bytes = (1 << 20) - 8;
        let word = time(&|| ssd.persist(bytes, &[0; 8], None, Structure::Other).expect("the device works"));
        // Otherwise it were two writes, one behind the other.
        assert!(fsync < inode + word + one * 3 / 2, "{fsync} ns; {inode} ns, {word} ns, {one} ns");
    });
}

#[test]
fn what_was_found_or_read_is_not_asked_for_again() {
    let fs = make_roomy();
    let ino = file(&fs, "file");
    write(&fs, ino, 0, &[1; 100_000]);
    let fs = remount(fs, roomy());
    fs.lookup(Ino::ROOT, name("file")).expect("it is there");
    assert_ne!(by_blocks(&fs, || drop(read(&fs, ino, 0, 100_000))), (0, 0));
    let before = fs.stats().names_looked_up;
    fs.lookup(Ino::ROOT, name("file")).expect("it is there");
    assert_eq!(fs.stats().names_looked_up, before, "the name is in host memory");
    assert_eq!(by_blocks(&fs, || drop(read(&fs, ino, 0, 100_000))), (0, 0), "so are the pages");
}

#[test]
fn the_background_task_writes_back() {
    Sim::new(1).run(|| {
        let options = || MountOptions { checkpoint_interval_ns: 1_000_000_000, ..roomy() };
        let fs = make(&FormatOptions { meta_pages: Some(4096), ..fine() }, 64 << 20, options());
        let ino = file(&fs, "file");
        write(&fs, ino, 0, &[7; 5000]);
        amphi_rt::time::sleep_ns(2_500_000_000);
        assert!(fs.stats().checkpoints > 0);
        let fs = crash(fs, options());
        assert_eq!(read(&fs, ino, 0, 5000), [7; 5000]);
    });
}

#[test]
fn a_full_file_system_goes_on() {
    for percent in [90, 97] {
        let fs = make(&FormatOptions { meta_pages: Some(1024), ..fine() }, 16 << 20, small::cramped());
        let blocks = fs.statfs().expect("it is mounted").blocks;
        let ino = file(&fs, "file");
        let pages = blocks * percent / 100 - 40;
        for page in 0..pages {
            write(&fs, ino, page * 4096, &page.to_le_bytes());
        }
        fs.fsync(ino, false).expect("space was promised");
        let mut dice = amphi_rt::random::Generator::new(percent);
        let mut wanted: Vec<_> = (0..pages).collect();
        for _ in 0..3000 {
            let page = dice.below(pages);
            wanted[page as usize] = dice.next();
            write(&fs, ino, page * 4096, &wanted[page as usize].to_le_bytes());
            fs.fsync(ino, true).expect("space was promised");
        }
        assert!(fs.stats().collected > 0, "{:?}", fs.stats());
        let fs = crash(fs, roomy());
        for (page, value) in (0..).zip(wanted) {
            assert_eq!(read(&fs, ino, page * 4096, 8), value.to_le_bytes());
        }
        small::assert_clean(fs);
    }
}
