//! Reserving, freeing and zeroing ranges, for file systems that offer it; the others refuse every call.

use amphi_vfs::{Allocate, Cred, Error, Ino, Seek, SetAttr, SetTime, TimeSpec};

use super::case_list;
use crate::harness::{Fs, USER, name};

case_list!(
    a_punched_range_reads_as_zeros,
    a_punched_hole_gives_its_space_back,
    reserved_space_grows_the_file_or_not,
    reserving_keeps_what_is_there,
    a_zeroed_range_reads_as_zeros,
    allocation_clears_set_id_and_moves_times,
    ranges_that_cannot_be_are_refused,
);

const GROW: Allocate = Allocate::Reserve { keep_size: false };
const KEEP: Allocate = Allocate::Reserve { keep_size: true };

/// Applies `what`; whether the file system offers it.
fn allocate(fs: &Fs, ino: Ino, offset: u64, length: u64, what: Allocate) -> bool {
    match fs.allocate(ino, offset, length, what, &Cred::ROOT) {
        Ok(()) => true,
        Err(Error::Unsupported(_)) => false,
        Err(error) => panic!("{what:?} of {length} bytes at {offset}: {error}"),
    }
}

/// The ranges that matter: within a block, whole blocks, across edges, across the end.
const RANGES: [(u64, u64); 7] =
    [(0, 1), (100, 200), (4_096, 4_096), (4_000, 9_000), (0, 30_000), (29_000, 5_000), (8_192, 1 << 20)];

fn check_zeroing(fs: &Fs, what: Allocate, keeps_size: bool) {
    for (offset, length) in RANGES {
        let file = fs.file(Ino::ROOT, "f");
        fs.put(file, 0, &[7; 30_000]);
        fs.fsync(file, false).unwrap();
        fs.put(file, 10_000, &[8; 3_000]);
        if !allocate(fs, file, offset, length, what) {
            return;
        }
        let size = if keeps_size { 30_000 } else { 30_000.max(offset + length) };
        assert_eq!(fs.attr(file).size, size, "{what:?} of {length} at {offset}");
        for round in ["at once", "after fsync"] {
            let all = fs.get(file, 0, 2 << 20);
            assert_eq!(all.len() as u64, size);
            for (at, &byte) in all.iter().enumerate() {
                let at = at as u64;
                let zero = (offset..offset + length).contains(&at) || at >= 30_000;
                assert_eq!(byte == 0, zero, "byte {at} {round}: {what:?} of {length} at {offset}");
            }
            fs.fsync(file, false).unwrap();
        }
        fs.unlink(Ino::ROOT, name("f")).unwrap();
        fs.forget(file, 1);
    }
}

fn a_punched_range_reads_as_zeros(fs: &Fs) {
    check_zeroing(fs, Allocate::PunchHole, true);
}

fn a_zeroed_range_reads_as_zeros(fs: &Fs) {
    check_zeroing(fs, Allocate::Zero { keep_size: true }, true);
    // Where the first was not offered, its file is still there.
    drop(fs.unlink(Ino::ROOT, name("f")));
    check_zeroing(fs, Allocate::Zero { keep_size: false }, false);
}

fn a_punched_hole_gives_its_space_back(fs: &Fs) {
    let file = fs.file(Ino::ROOT, "f");
    fs.put(file, 0, &vec![7; 1 << 20]);
    fs.fsync(file, false).unwrap();
    let full = fs.attr(file).blocks;
    if !allocate(fs, file, 65_536, 786_432, Allocate::PunchHole) {
        return;
    }
    fs.fsync(file, false).unwrap();
    let freed = (full - fs.attr(file).blocks) * 512;
    assert!((700_000..=800_000).contains(&freed), "{freed} bytes of 786,432 came back");
    assert_eq!(fs.seek(file, 0, Seek::Hole), Ok(65_536));
    assert_eq!(fs.seek(file, 65_536, Seek::Data), Ok(65_536 + 786_432));
}

fn reserved_space_grows_the_file_or_not(fs: &Fs) {
    let file = fs.file(Ino::ROOT, "f");
    if !allocate(fs, file, 10_000, 90_000, KEEP) {
        return;
    }
    assert_eq!(fs.attr(file).size, 0);
    assert_eq!(fs.get(file, 0, 10), b"");
    assert!(fs.attr(file).blocks * 512 >= 86_016, "{} sectors", fs.attr(file).blocks);
    fs.put(file, 50_000, b"x");
    assert_eq!(fs.get(file, 49_999, 10), b"\0x");
    assert!(allocate(fs, file, 0, 70_001, GROW));
    assert_eq!(fs.attr(file).size, 70_001);
    assert!(fs.get(file, 50_001, 30_000).iter().all(|&byte| byte == 0));
    assert!(allocate(fs, file, 0, 10, GROW));
    assert_eq!(fs.attr(file).size, 70_001, "a range within the file does not change its size");
}

fn reserving_keeps_what_is_there(fs: &Fs) {
    let file = fs.file(Ino::ROOT, "f");
    fs.put(file, 5_000, &[9; 3_000]);
    fs.put(file, 100_000, b"end");
    if !allocate(fs, file, 0, 200_000, KEEP) {
        return;
    }
    let all = fs.get(file, 0, 200_000);
    assert_eq!(all.len(), 100_003);
    assert!(all[..5_000].iter().all(|&byte| byte == 0) && all[5_000..8_000].iter().all(|&byte| byte == 9));
    assert!(all[8_000..100_000].iter().all(|&byte| byte == 0) && all[100_000..] == *b"end");
}

fn allocation_clears_set_id_and_moves_times(fs: &Fs) {
    let file = fs.file(Ino::ROOT, "f");
    fs.put(file, 0, &[1; 10_000]);
    let old = Some(SetTime::At(TimeSpec { ns: 5 }));
    fs.change(file, &SetAttr { mode: Some(0o6755), mtime: old, ..SetAttr::default() });
    if !allocate(fs, file, 0, 5_000, Allocate::PunchHole) {
        return;
    }
    assert_eq!(fs.attr(file).mode, 0o6755, "by root");
    assert!(fs.attr(file).mtime.ns > 5);
    fs.allocate(file, 0, 5_000, Allocate::PunchHole, &USER).unwrap();
    assert_eq!(fs.attr(file).mode, 0o755, "by a user");
}

fn ranges_that_cannot_be_are_refused(fs: &Fs) {
    let file = fs.file(Ino::ROOT, "f");
    fs.put(file, 0, b"abc");
    if !allocate(fs, file, 0, 1, KEEP) {
        return;
    }
    let attempt = |ino, offset, length, what| fs.allocate(ino, offset, length, what, &Cred::ROOT);
    assert!(matches!(attempt(file, 0, 0, GROW), Err(Error::Invalid(_))));
    for (offset, length) in [(u64::MAX, 1), (1, u64::MAX), (1 << 62, 1)] {
        assert_eq!(attempt(file, offset, length, GROW), Err(Error::TooLarge), "{length} at {offset}");
    }
    assert_eq!(attempt(file, 0, 1 << 42, KEEP), Err(Error::NoSpace), "4 TiB");
    assert_eq!(attempt(Ino::ROOT, 0, 1, GROW), Err(Error::IsDirectory));
    assert_eq!(fs.get(file, 0, 10), b"abc");
}
