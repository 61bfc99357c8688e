//! What each operation costs: bytes stored through the byte port and barriers, beside what NOVA's protocol
//! implies. docs/format/novalike.md has the table with the source of each number.

use amphi_fs_novalike::NovaLike;
use amphi_ssd::Ssd;
use amphi_vfs::{Cred, FileSystem, Ino, RenameMode, XattrMode};

use crate::shared::{self, cost, create, name, write};

const ENTRY: u64 = 64;
const INODE: u64 = 128;
const WORD: u64 = 8;
const PAGE: u64 = 4096;
/// A transaction of up to four words, beside them: the words as they were, and the journal's two pointers.
const JOURNAL: u64 = ENTRY + 2 * WORD;

#[test]
fn operations_store_what_the_protocol_says() {
    let fs = shared::roomy::<NovaLike<Ssd>>();
    // So that the root has a log, and the first file one.
    let first = create(&fs, "first");
    write(&fs, first, 0, &[1; PAGE as usize]);
    let mut file = Ino(0);
    let mut costs = Vec::new();
    let mut note = |what: &'static str, cost: (u64, u64, u64), stored: u64, loaded: u64, barriers: u64| {
        costs.push((what, cost, (stored, loaded, barriers)));
    };
    // The inode, the name's entry; the directory's tail and the inode's word.
    note("create", cost(&fs, || file = create(&fs, "file")), INODE + ENTRY + JOURNAL + 2 * WORD, 0, 4);
    // The data, their entry, the tail.
    let append = |offset: u64| cost(&fs, || write(&fs, first, offset, &[2; PAGE as usize]));
    note("append 4 KB", append(PAGE), PAGE + ENTRY + WORD, 0, 2);
    note("overwrite 4 KB", append(0), PAGE + ENTRY + WORD, 0, 2);
    // A whole page is written: what is not new is loaded.
    let part = cost(&fs, || write(&fs, first, 100, &[3; 64]));
    note("overwrite 64 B", part, PAGE + ENTRY + WORD, PAGE - 64, 2);
    note("fsync", cost(&fs, || fs.fsync(first, false)), 0, 0, 0);
    // The first page of a log: its address too.
    let first_write = cost(&fs, || write(&fs, file, 0, &[2; PAGE as usize]));
    note("first write 4 KB", first_write, PAGE + ENTRY + 2 * WORD, 0, 2);
    // Two names' entries and the inode's; two tails and the mark on the old name.
    let moved = || fs.rename(Ino::ROOT, name("file"), Ino::ROOT, name("moved"), RenameMode::Replace);
    note("rename", cost(&fs, moved), 3 * ENTRY + JOURNAL + 3 * WORD, 0, 4);
    fs.forget(file, 1);
    // The name's entry; the directory's tail, the mark on the name, the inode's word.
    let unlink = || fs.unlink(Ino::ROOT, name("moved"));
    note("unlink", cost(&fs, unlink), ENTRY + JOURNAL + 3 * WORD, 0, 4);
    // As a creation, and the first entry of the directory's log.
    let mkdir = || fs.mkdir(Ino::ROOT, name("dir"), 0o755, &Cred::ROOT);
    note("mkdir", cost(&fs, mkdir), INODE + 2 * ENTRY + JOURNAL + 2 * WORD, 0, 4);
    for (what, is, wanted) in &costs {
        println!("{what}: {} B stored, {} B loaded, {} barriers", is.0, is.1, is.2);
        assert_eq!(is, wanted, "{what}");
    }
}

/// As often as to have their logs collected in both ways.
#[test]
fn logs_stay_short() {
    let fs = shared::roomy::<NovaLike<Ssd>>();
    let file = create(&fs, "file");
    // Each page of entries but the last few is dead.
    for round in 0..1000_u64 {
        write(&fs, file, round % 4 * PAGE, &[round as u8; 4096]);
    }
    assert!(fs.pages_collected().0 > 10, "{:?}", fs.pages_collected());
    // One in ten entries of each page stays alive.
    for round in 0..2000_u64 {
        let block = if round % 10 == 0 { 10 + round } else { 1 };
        write(&fs, file, block * PAGE, &[7; 100]);
    }
    assert!(fs.pages_collected().1 > 10, "{:?}", fs.pages_collected());
    for round in 0..500 {
        let text = format!("name-{round}");
        fs.mkdir(Ino::ROOT, name(&text), 0o700, &Cred::ROOT).expect("there is room");
        if round % 10 != 0 {
            fs.rmdir(Ino::ROOT, name(&text)).expect("it is empty");
        }
    }
    fs.setxattr(file, b"user.a", b"value", XattrMode::Set).expect("there is room");
    let before = fs.getattr(file).expect("it is there");
    let fs = shared::remount(fs, false);
    assert_eq!(fs.getattr(file), Ok(before));
    let mut bytes = [0; 100];
    for round in (0..2000_u64).step_by(10) {
        assert_eq!(fs.read(file, (10 + round) * PAGE, &mut bytes, false), Ok(100));
        assert_eq!(bytes, [7; 100], "block {}", 10 + round);
    }
    let mut names = 0;
    fs.readdir(Ino::ROOT, 2, &mut |_| {
        names += 1;
        true
    })
    .expect("it can be listed");
    assert_eq!(names, 51);
    assert_eq!(fs.getxattr(file, b"user.a"), Ok(b"value".to_vec()));
}

/// Free pages and numbers are what they were once everything is deleted.
#[test]
fn what_is_deleted_is_free_again() {
    let fs = shared::remount(shared::cramped::<NovaLike<Ssd>>(), false);
    let before = fs.statfs().expect("it answers");
    let file = create(&fs, "file");
    for page in 0..300 {
        write(&fs, file, page * PAGE, &[page as u8; 5000]);
    }
    fs.symlink(Ino::ROOT, name("link"), &[b'x'; 300], &Cred::ROOT).expect("there is room");
    fs.unlink(Ino::ROOT, name("link")).expect("it is there");
    fs.unlink(Ino::ROOT, name("file")).expect("it is there");
    let fs = shared::remount(fs, false);
    let after = fs.statfs().expect("it answers");
    // The root has a log now.
    assert_eq!((after.blocks_free + 1, after.inodes_free), (before.blocks_free, before.inodes_free));
}
