//! What each operation costs: bytes stored through the byte port and barriers, beside what PMFS's protocol
//! implies. docs/format/pmfslike.md has the table with the source of each number.

use amphi_fs_pmfslike::PmfsLike;
use amphi_ssd::Ssd;
use amphi_vfs::{Cred, FileSystem, FileType, Ino, RenameMode, SetAttr};

use crate::shared::{self, cost, create, name, write};

const ENTRY: u64 = 64;
const INODE: u64 = 128;
const WORD: u64 = 8;
const PAGE: u64 = 4096;

/// Bytes of a change with so many entries in the log, and the one that says that it is complete; barriers of
/// one with an entry for each range: each entry, in place, complete.
const fn logged(entries: u64) -> (u64, u64) {
    ((entries + 1) * ENTRY, entries + 2)
}

#[test]
fn operations_store_what_the_protocol_says() {
    let fs = shared::roomy::<PmfsLike<Ssd>>();
    // So that the root has a name, and the first file a page of pointers.
    let first = create(&fs, "first");
    write(&fs, first, 0, &[1; 2 * PAGE as usize]);
    let mut file = Ino(0);
    let mut costs = Vec::new();
    let mut note = |what: &'static str, cost: (u64, u64, u64), stored: u64, barriers: u64| {
        costs.push((what, cost, (stored, 0, barriers)));
    };
    // In the log: the directory's times, the inode's first word, the length of the name in front. The inode
    // and the name, which nobody sees before.
    let three = logged(3);
    note("create", cost(&fs, || file = create(&fs, "file")), three.0 + 3 * WORD + INODE - WORD + 16, three.1);
    let put = |offset: u64, bytes: usize| cost(&fs, || write(&fs, first, offset, &vec![2; bytes]));
    // In the log: the pointer; size and time.
    let (two, one) = (logged(2), logged(1));
    note("append 4 KB", put(2 * PAGE, 4096), PAGE + two.0 + 3 * WORD, two.1);
    // What a new page has behind the data is cleared.
    note("append 100 B to a new page", put(3 * PAGE, 100), PAGE + two.0 + 3 * WORD, two.1);
    note("append 64 B", put(3 * PAGE + 100, 64), 64 + one.0 + 2 * WORD, one.1);
    // In place, with the time.
    note("overwrite 4 KB", put(0, 4096), PAGE + WORD, 1);
    note("overwrite 64 B", put(100, 64), 64 + WORD, 1);
    note("fsync", cost(&fs, || fs.fsync(first, false)), 0, 0);
    // A tree of one page; then one with a page of pointers.
    let start = |offset: u64| cost(&fs, || write(&fs, file, offset, &[2; PAGE as usize]));
    note("first write 4 KB", start(0), PAGE + one.0 + 3 * WORD, one.1);
    note("second write 4 KB", start(PAGE), 2 * PAGE + one.0 + 3 * WORD, one.1);
    // In the log: the time of change and the mode.
    let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    let chmod = cost(&fs, || fs.setattr(file, &mode, &Cred::ROOT));
    note("chmod", chmod, one.0 + 2 * WORD, one.1);
    // In the log: the old name's number and length, the directory's time, the inode's.
    let moved = || fs.rename(Ino::ROOT, name("file"), Ino::ROOT, name("moved"), RenameMode::Replace);
    note("rename", cost(&fs, moved), three.0 + 4 * WORD + 24, three.1);
    fs.forget(file, 1);
    // In the log: the name's number, the directory's time, the inode's first word.
    let unlink = || fs.unlink(Ino::ROOT, name("moved"));
    note("unlink", cost(&fs, unlink), three.0 + 3 * WORD, three.1);
    // In the log: a free entry's two words, the directory's time and links, the inode's first word.
    let mkdir = || fs.mkdir(Ino::ROOT, name("dir"), 0o755, &Cred::ROOT);
    note("mkdir", cost(&fs, mkdir), PAGE + three.0 + 6 * WORD + INODE - WORD, three.1);
    for (what, is, _) in &costs {
        println!("{what}: {} B stored, {} B loaded, {} barriers", is.0, is.1, is.2);
    }
    for (what, is, wanted) in &costs {
        assert_eq!(is, wanted, "{what}");
    }
}

/// More changes than the log holds, and then no unmount.
#[test]
fn the_log_goes_round() {
    let fs = shared::cramped::<PmfsLike<Ssd>>();
    let dir = fs.mkdir(Ino::ROOT, name("dir"), 0o700, &Cred::ROOT).expect("there is room").attr.ino;
    for round in 0..2000_u64 {
        let text = format!("name-{round}");
        let made = fs.create(dir, name(&text), FileType::Regular, 0o644, 0, &Cred::ROOT);
        let ino = made.expect("there is room").attr.ino;
        fs.forget(ino, 1);
        if round % 50 != 0 {
            fs.unlink(dir, name(&text)).expect("it is there");
        }
    }
    let ssd = std::sync::Arc::clone(fs.device());
    let before = fs.statfs().expect("it answers");
    drop(fs);
    let fs: PmfsLike<Ssd> = shared::mount(&ssd, 3, false);
    let mut names = Vec::new();
    fs.readdir(dir, 2, &mut |entry| {
        names.push(String::from_utf8_lossy(entry.name).into_owned());
        true
    })
    .expect("it can be listed");
    names.sort();
    let mut wanted: Vec<_> = (0..2000).step_by(50).map(|round| format!("name-{round}")).collect();
    wanted.sort();
    assert_eq!(names, wanted);
    assert_eq!(fs.statfs(), Ok(before));
    shared::remount(fs, false);
}

/// Blocks far apart: pages of pointers on three levels, which come and go.
#[test]
fn trees_grow_and_shrink() {
    let fs = shared::remount(shared::cramped::<PmfsLike<Ssd>>(), false);
    let before = fs.statfs().expect("it answers");
    let file = create(&fs, "file");
    let blocks = [0, 1, 511, 512, 700, 512 * 512 - 1, 512 * 512, 512 * 512 * 3 + 7];
    for block in blocks {
        write(&fs, file, block * PAGE + 5, &[block as u8 | 1; 100]);
    }
    let fs = shared::remount(fs, false);
    let has = |fs: &PmfsLike<Ssd>, block: u64| {
        let mut bytes = [0; 110];
        let read = fs.read(file, block * PAGE, &mut bytes, false).expect("it can be read");
        read > 5 && bytes[5] == block as u8 | 1
    };
    assert!(blocks.iter().all(|block| has(&fs, *block)));
    let punch = |fs: &PmfsLike<Ssd>, first: u64, count: u64| {
        let what = amphi_vfs::Allocate::PunchHole;
        fs.allocate(file, first * PAGE, count * PAGE, what, &Cred::ROOT).expect("it can be punched");
    };
    punch(&fs, 511, 512 * 512 - 511);
    let fs = shared::remount(fs, false);
    let left: Vec<_> = blocks.into_iter().filter(|block| has(&fs, *block)).collect();
    assert_eq!(left, [0, 1, 512 * 512, 512 * 512 * 3 + 7]);
    let cut = |fs: &PmfsLike<Ssd>, size: u64| {
        let size = SetAttr { size: Some(size), ..SetAttr::default() };
        fs.setattr(file, &size, &Cred::ROOT).expect("it can be cut");
    };
    cut(&fs, PAGE + 20);
    let fs = shared::remount(fs, false);
    let left: Vec<_> = blocks.into_iter().filter(|block| has(&fs, *block)).collect();
    assert_eq!(left, [0, 1]);
    cut(&fs, 0);
    assert_eq!(fs.getattr(file).expect("it is there").blocks, 0);
    assert_eq!(fs.statfs().expect("it answers").blocks_free, before.blocks_free);
}

/// Free pages and numbers are what they were once everything is deleted, but for the table of inodes, which
/// has grown.
#[test]
fn what_is_deleted_is_free_again() {
    let fs = shared::remount(shared::cramped::<PmfsLike<Ssd>>(), false);
    let before = fs.statfs().expect("it answers");
    let dir = fs.mkdir(Ino::ROOT, name("dir"), 0o700, &Cred::ROOT).expect("there is room").attr.ino;
    for round in 0..100 {
        let text = format!("name-{round}");
        let made = fs.create(dir, name(&text), FileType::Regular, 0o644, 0, &Cred::ROOT);
        let ino = made.expect("there is room").attr.ino;
        write(&fs, ino, 3000, &[round as u8; 5000]);
        fs.forget(ino, 1);
    }
    fs.symlink(dir, name("link"), &[b'x'; 300], &Cred::ROOT).expect("there is room");
    fs.unlink(dir, name("link")).expect("it is there");
    for round in 0..100 {
        fs.unlink(dir, name(&format!("name-{round}"))).expect("it is there");
    }
    fs.forget(dir, 1);
    fs.rmdir(Ino::ROOT, name("dir")).expect("it is empty");
    let after = shared::remount(fs, false).statfs().expect("it answers");
    // Four pages more of the table, and the page of pointers that leads to them.
    assert_eq!((after.blocks_free + 5, after.inodes_free), (before.blocks_free, before.inodes_free));
}
