//! What is written over its own block, and what an `fdatasync` leaves in memory: counted by what the device
//! writes. F2FS of Linux 6.1 does the same (`docs/measurements/validation.md`).

use std::sync::Arc;

use amphi_fs_f2fslike::F2fsLike;
use amphi_ssd::Ssd;
use amphi_vfs::{Allocate, Cred, FileSystem, FileType, Ino, Name, WriteMode};
use amphi_volume::{MountOptions, Volume};

use crate::small::{mount, roomy};

const PAGE: u64 = 4096;

fn written(fs: &F2fsLike<Ssd>, work: impl FnOnce()) -> u64 {
    let before = fs.device().stats().block_write.bytes();
    work();
    (fs.device().stats().block_write.bytes() - before) / PAGE
}

fn new_file(fs: &F2fsLike<Ssd>, name: &[u8]) -> Ino {
    let name = Name::new(name).expect("a valid name");
    let made = fs.create(Ino::ROOT, name, FileType::Regular, 0o644, 0, &Cred::ROOT);
    made.expect("there is room").attr.ino
}

fn write(fs: &F2fsLike<Ssd>, ino: Ino, page: u64, pages: u64, mode: WriteMode) {
    let bytes = vec![page as u8 + 1; (pages * PAGE) as usize];
    assert_eq!(fs.write(ino, page * PAGE, &bytes, mode, &Cred::ROOT), Ok(bytes.len()));
}

#[test]
fn an_overwrite_with_fdatasync_writes_its_pages_alone() {
    let fs = roomy();
    let ino = new_file(&fs, b"f");
    let buffered = WriteMode::default();
    write(&fs, ino, 0, 32, buffered);
    assert_eq!(written(&fs, || fs.fsync(ino, false).expect("it works")), 33, "32 pages and the inode");
    write(&fs, ino, 3, 12, buffered);
    assert_eq!(written(&fs, || fs.fsync(ino, true).expect("it works")), 12);
    let synced = WriteMode { sync_data: true, ..buffered };
    assert_eq!(written(&fs, || write(&fs, ino, 5, 1, synced)), 1, "O_DSYNC");
    let direct = WriteMode { direct: true, ..buffered };
    assert_eq!(written(&fs, || write(&fs, ino, 6, 1, direct)), 1);
    write(&fs, ino, 7, 1, buffered);
    assert_eq!(written(&fs, || fs.fsync(ino, false).expect("it works")), 2, "a page, and times in the inode");
    assert_eq!(written(&fs, || fs.fsync(ino, false).expect("it works")), 0, "nothing has changed");
    write(&fs, ino, 32, 1, buffered);
    assert_eq!(written(&fs, || fs.fsync(ino, true).expect("it works")), 2, "the file is longer");
    fs.allocate(ino, 33 * PAGE, 2 * PAGE, Allocate::Reserve { keep_size: false }, &Cred::ROOT)
        .expect("there is room");
    fs.sync().expect("it works");
    write(&fs, ino, 33, 1, buffered);
    assert_eq!(written(&fs, || fs.fsync(ino, true).expect("it works")), 2, "a page that had no block");
    write(&fs, ino, 33, 1, buffered);
    assert_eq!(written(&fs, || fs.fsync(ino, true).expect("it works")), 1, "and has one");
}

/// The nodes of what a `sync` has moved are there before an `fdatasync` relies on them.
#[test]
fn what_was_written_in_place_is_there_after_a_crash() {
    let fs = roomy();
    let ino = new_file(&fs, b"f");
    write(&fs, ino, 0, 16, WriteMode::default());
    fs.sync().expect("it works");
    // More than an fsync writes in place: to new blocks.
    write(&fs, ino, 1, 12, WriteMode::default());
    fs.fsync(ino, false).expect("it works");
    write(&fs, ino, 2, 1, WriteMode::default());
    fs.fsync(ino, true).expect("it works");
    let ssd = Arc::clone(fs.device());
    drop(fs);
    let fs = mount(&ssd, 10_000, false);
    let mut bytes = vec![0; 16 << 12];
    assert_eq!(fs.read(ino, 0, &mut bytes, false), Ok(16 << 12));
    let firsts: Vec<_> = bytes.chunks(PAGE as usize).map(|page| page[0]).collect();
    assert_eq!(firsts, [1, 2, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1]);
}

#[test]
fn with_mode_lfs_everything_goes_to_new_blocks() {
    let fs = roomy();
    let ssd = Arc::clone(fs.device());
    fs.unmount().expect("memory does not fail");
    let mount = |words: &str| {
        let options = MountOptions { words: words.to_owned(), ..MountOptions::default() };
        <F2fsLike<Ssd> as Volume<Ssd>>::mount(&ssd, &options)
    };
    let Err(refused) = mount("mode=fast") else { panic!("there is no such mode") };
    assert!(refused.to_string().contains("mode"), "{refused}");
    let fs = mount("mode=lfs").expect("it can be mounted");
    let ino = new_file(&fs, b"f");
    write(&fs, ino, 0, 4, WriteMode::default());
    fs.fsync(ino, false).expect("it works");
    write(&fs, ino, 1, 1, WriteMode::default());
    assert_eq!(written(&fs, || fs.fsync(ino, true).expect("it works")), 2, "a page, and what names it");
}
