//! Direct reads are the device's (`FileSystem::read` with `direct`): counted by what the device reads.

use std::sync::Arc;

use amphi_fs_f2fslike::F2fsLike;
use amphi_ssd::Ssd;
use amphi_vfs::{Cred, FileSystem, FileType, Ino, Name, WriteMode};

use crate::small::{mount, roomy};

/// Pages that the block port reads and writes for a read of 16 KiB, all of whose bytes are `expected`.
fn read(fs: &F2fsLike<Ssd>, ino: Ino, at: u64, direct: bool, expected: u8) -> (u64, u64) {
    let mut bytes = vec![0; 16 << 10];
    let before = fs.device().stats();
    assert_eq!(fs.read(ino, at, &mut bytes, direct), Ok(16 << 10));
    let after = fs.device().stats();
    assert!(bytes.iter().all(|byte| *byte == expected), "{expected} at {at}");
    let pages = |after: u64, before: u64| (after - before) / 4096;
    (
        pages(after.block_read.bytes(), before.block_read.bytes()),
        pages(after.block_write.bytes(), before.block_write.bytes()),
    )
}

#[test]
fn direct_reads_are_the_devices() {
    let fs = roomy();
    let name = Name::new(b"f").expect("a valid name");
    let made = fs.create(Ino::ROOT, name, FileType::Regular, 0o644, 0, &Cred::ROOT);
    let ino = made.expect("there is room").attr.ino;
    let write = |fs: &F2fsLike<Ssd>, value: u8, bytes: usize| {
        let done = fs.write(ino, 0, &vec![value; bytes], WriteMode::default(), &Cred::ROOT);
        assert_eq!(done, Ok(bytes));
    };
    write(&fs, 1, 64 << 10);
    let (pages, written) = read(&fs, ino, 4096, true, 1);
    assert!(pages >= 4 && written >= 16, "what was dirty is written, then read: {pages}, {written}");
    assert_eq!(read(&fs, ino, 4096, true, 1), (4, 0), "and read again");
    assert_eq!(read(&fs, ino, 4096, false, 1), (0, 0), "what was in memory has stayed");
    assert_eq!(read(&fs, ino, 100, true, 1), (5, 0), "whole pages around");
    let ssd = Arc::clone(fs.device());
    fs.unmount().expect("memory does not fail");
    let fs = mount(&ssd, 10_000, false);
    read(&fs, ino, 0, true, 1);
    assert_eq!(read(&fs, ino, 0, true, 1), (4, 0));
    assert_eq!(read(&fs, ino, 0, false, 1), (4, 0), "none was kept");
    write(&fs, 2, 16 << 10);
    let (pages, written) = read(&fs, ino, 0, true, 2);
    assert!(pages >= 4 && written >= 4, "what was dirty is written, then read: {pages}, {written}");
}
