//! File contents: reads, writes, holes, truncation, appends, seeking, limits.

use amphi_vfs::{Cred, Error, FileType, Ino, OpenFlags, Seek, SetAttr, WriteMode};

use super::case_list;
use crate::harness::{Fs, name};

case_list!(
    what_is_written_is_read,
    reads_end_at_the_end,
    holes_read_as_zeros,
    shrinking_drops_data_for_good,
    growing_adds_a_hole,
    appends_go_to_the_end,
    empty_writes_change_nothing,
    overwrites_keep_what_is_around_them,
    large_writes_cross_blocks,
    direct_and_buffered_agree,
    open_with_truncate_cuts,
    data_and_holes_are_found,
    a_sparse_file_takes_little_space,
    offsets_out_of_range_are_refused,
    data_calls_on_other_types_are_refused,
    fsync_and_sync_keep_everything,
);

/// Bytes that tell where they were written.
fn pattern(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|i| (i.wrapping_mul(31).wrapping_add(i >> 8).wrapping_add(seed * 17) | 1) as u8).collect()
}

fn what_is_written_is_read(fs: &Fs) {
    let file = fs.file(Ino::ROOT, "f");
    let data = pattern(1, 10_000);
    fs.put(file, 0, &data);
    assert_eq!(fs.attr(file).size, 10_000);
    for (offset, length) in [(0, 10_000), (0, 1), (4095, 2), (4096, 4096), (9_999, 1), (63, 66)] {
        assert!(fs.get(file, offset, length) == data[offset as usize..][..length], "{length} at {offset}");
    }
}

fn reads_end_at_the_end(fs: &Fs) {
    let file = fs.file(Ino::ROOT, "f");
    assert_eq!(fs.get(file, 0, 10), b"");
    fs.put(file, 0, b"abc");
    assert_eq!(fs.get(file, 0, 10), b"abc");
    assert_eq!(fs.get(file, 2, 10), b"c");
    assert_eq!(fs.get(file, 3, 10), b"");
    assert_eq!(fs.get(file, 1 << 40, 10), b"");
    assert_eq!(fs.get(file, 0, 0), b"");
}

fn holes_read_as_zeros(fs: &Fs) {
    let file = fs.file(Ino::ROOT, "f");
    fs.put(file, 100_000, b"end");
    fs.put(file, 20_001, b"middle");
    let all = fs.get(file, 0, 200_000);
    assert_eq!(all.len(), 100_003);
    assert!(all[..20_001].iter().all(|&b| b == 0), "before the first data");
    assert_eq!(&all[20_001..20_007], b"middle");
    assert!(all[20_007..100_000].iter().all(|&b| b == 0), "between the data");
    assert_eq!(&all[100_000..], b"end");
}

fn shrinking_drops_data_for_good(fs: &Fs) {
    for (length, cut) in [(10_000, 5_000), (10_000, 4_096), (100, 0), (8_192, 8_191), (300_000, 70_001)] {
        let text = format!("{length}-{cut}");
        let file = fs.file(Ino::ROOT, &text);
        fs.put(file, 0, &pattern(2, length));
        assert_eq!(fs.resize(file, cut as u64).size, cut as u64);
        assert_eq!(fs.get(file, 0, length).len(), cut);
        fs.resize(file, length as u64);
        let all = fs.get(file, 0, length);
        assert!(all[..cut] == pattern(2, length)[..cut], "what was kept of {text}");
        assert!(all[cut..].iter().all(|&b| b == 0), "what was dropped of {text} is gone");
        fs.resize(file, cut as u64);
        fs.put(file, length as u64 + 10, b"x");
        assert!(
            fs.get(file, cut as u64, length - cut).iter().all(|&b| b == 0),
            "after a write beyond {text}"
        );
    }
}

fn growing_adds_a_hole(fs: &Fs) {
    let file = fs.file(Ino::ROOT, "f");
    fs.put(file, 0, b"abc");
    fs.resize(file, 50_000);
    let all = fs.get(file, 0, 60_000);
    assert_eq!((all.len(), &all[..3]), (50_000, b"abc".as_slice()));
    assert!(all[3..].iter().all(|&b| b == 0));
}

fn appends_go_to_the_end(fs: &Fs) {
    let file = fs.file(Ino::ROOT, "f");
    let append = WriteMode { append: true, ..WriteMode::default() };
    for (offset, data) in [(0, b"one".as_slice()), (1_000, b"two"), (0, b"three")] {
        assert_eq!(fs.write(file, offset, data, append, &Cred::ROOT), Ok(data.len()));
    }
    assert_eq!(fs.get(file, 0, 100), b"onetwothree");
    fs.resize(file, 5_000);
    fs.write(file, 0, b"end", append, &Cred::ROOT).unwrap();
    assert_eq!(fs.get(file, 4_999, 100), b"\0end");
}

fn empty_writes_change_nothing(fs: &Fs) {
    let file = fs.file(Ino::ROOT, "f");
    let before = fs.attr(file);
    fs.put(file, 1_000_000, b"");
    assert_eq!(fs.attr(file), before);
}

fn overwrites_keep_what_is_around_them(fs: &Fs) {
    let file = fs.file(Ino::ROOT, "f");
    let mut expected = pattern(3, 20_000);
    fs.put(file, 0, &expected);
    fs.fsync(file, false).unwrap();
    for (offset, length) in
        [(0, 1), (63, 2), (64, 64), (4_000, 200), (8_192, 4_096), (19_999, 1), (5_000, 9_000)]
    {
        let patch = pattern(offset + 4, length);
        fs.put(file, offset as u64, &patch);
        expected[offset..offset + length].copy_from_slice(&patch);
        assert!(fs.get(file, 0, 30_000) == expected, "{length} bytes at {offset}");
        fs.fsync(file, true).unwrap();
        assert!(fs.get(file, 0, 30_000) == expected, "{length} bytes at {offset}, after fsync");
    }
}

fn large_writes_cross_blocks(fs: &Fs) {
    let file = fs.file(Ino::ROOT, "f");
    let data = pattern(4, (1 << 20) + 7);
    fs.put(file, 4_093, &data);
    assert!(fs.get(file, 4_093, data.len()) == data);
    assert_eq!(fs.attr(file).size, 4_093 + data.len() as u64);
}

fn direct_and_buffered_agree(fs: &Fs) {
    let file = fs.file(Ino::ROOT, "f");
    let direct = WriteMode { direct: true, ..WriteMode::default() };
    let (one, two) = (pattern(5, 8_192), pattern(6, 4_096));
    fs.put(file, 0, &one);
    fs.write(file, 4_096, &two, direct, &Cred::ROOT).unwrap();
    assert!(fs.get(file, 4_096, 4_096) == two, "a buffered read sees a direct write");
    let patch = pattern(7, 512);
    fs.put(file, 512, &patch);
    let mut read = vec![0; 8_192];
    assert_eq!(fs.read(file, 0, &mut read, true), Ok(8_192));
    assert!(read[512..1024] == patch, "a direct read sees a buffered write");
    assert!(read[..512] == one[..512] && read[4_096..] == two);
    fs.write(file, 8_192, &pattern(8, 100), direct, &Cred::ROOT).unwrap();
    assert_eq!(fs.attr(file).size, 8_292, "a direct write extends the file");
    assert_eq!(fs.get(file, 8_192, 200), pattern(8, 100));
}

fn open_with_truncate_cuts(fs: &Fs) {
    let file = fs.file(Ino::ROOT, "f");
    fs.put(file, 0, b"old contents");
    fs.open(file, OpenFlags { write: true, truncate: true, ..OpenFlags::default() }).unwrap();
    assert_eq!(fs.attr(file).size, 0);
    fs.put(file, 3, b"new");
    assert_eq!(fs.get(file, 0, 100), b"\0\0\0new");
    fs.release(file);
}

fn data_and_holes_are_found(fs: &Fs) {
    const MB: u64 = 1 << 20;
    let file = fs.file(Ino::ROOT, "f");
    assert_eq!(fs.seek(file, 0, Seek::Data), Err(Error::NoData), "an empty file");
    assert_eq!(fs.seek(file, 0, Seek::Hole), Err(Error::NoData), "an empty file");
    fs.put(file, MB, &pattern(9, 65_536));
    fs.put(file, 3 * MB, &pattern(9, 65_536));
    fs.resize(file, 5 * MB);
    for round in ["in memory", "after fsync"] {
        assert_eq!(fs.seek(file, 0, Seek::Hole), Ok(0), "{round}");
        assert_eq!(fs.seek(file, 0, Seek::Data), Ok(MB), "{round}");
        assert_eq!(fs.seek(file, MB + 5, Seek::Data), Ok(MB + 5), "{round}");
        assert_eq!(fs.seek(file, MB, Seek::Hole), Ok(MB + 65_536), "{round}");
        assert_eq!(fs.seek(file, MB + 65_536, Seek::Data), Ok(3 * MB), "{round}");
        assert_eq!(fs.seek(file, 4 * MB, Seek::Data), Err(Error::NoData), "{round}");
        assert_eq!(fs.seek(file, 4 * MB, Seek::Hole), Ok(4 * MB), "{round}");
        assert_eq!(fs.seek(file, 5 * MB, Seek::Hole), Err(Error::NoData), "{round}");
        fs.fsync(file, false).unwrap();
    }
    let dense = fs.file(Ino::ROOT, "dense");
    fs.put(dense, 0, b"data");
    assert_eq!(fs.seek(dense, 0, Seek::Hole), Ok(4), "the end of a file is a hole");
}

fn a_sparse_file_takes_little_space(fs: &Fs) {
    let file = fs.file(Ino::ROOT, "f");
    fs.resize(file, 4 << 40);
    fs.put(file, (4 << 40) - 3, b"end");
    fs.put(file, 1 << 35, b"mid");
    fs.fsync(file, false).unwrap();
    let attr = fs.attr(file);
    assert_eq!(attr.size, 4 << 40);
    assert!(attr.blocks > 0 && attr.blocks * 512 < 1 << 20, "{} sectors for 6 bytes", attr.blocks);
    assert_eq!(fs.get(file, (4 << 40) - 5, 10), b"\0\0end");
    assert_eq!(fs.get(file, 1 << 35, 4), b"mid\0");
    fs.resize(file, 0);
    assert_eq!(fs.get(file, 0, 10), b"");
}

fn offsets_out_of_range_are_refused(fs: &Fs) {
    let file = fs.file(Ino::ROOT, "f");
    fs.put(file, 0, b"abc");
    for offset in [u64::MAX, u64::MAX - 2, 1 << 63, (1 << 63) - 2] {
        let refused = fs.write(file, offset, b"xyz", WriteMode::default(), &Cred::ROOT);
        assert_eq!(refused, Err(Error::TooLarge), "write at {offset}");
        assert_eq!(fs.get(file, offset, 10), b"", "read at {offset}");
    }
    let huge = SetAttr { size: Some(u64::MAX), ..SetAttr::default() };
    assert_eq!(fs.setattr(file, &huge, &Cred::ROOT), Err(Error::TooLarge));
    assert_eq!(fs.get(file, 0, 10), b"abc");
}

fn data_calls_on_other_types_are_refused(fs: &Fs) {
    let dir = fs.dir(Ino::ROOT, "d");
    let write = |ino| fs.write(ino, 0, b"x", WriteMode::default(), &Cred::ROOT);
    assert_eq!(fs.read(dir, 0, &mut [0; 4], false), Err(Error::IsDirectory));
    assert_eq!(write(dir), Err(Error::IsDirectory));
    let fifo = fs.create(Ino::ROOT, name("p"), FileType::Fifo, 0o600, 0, &Cred::ROOT).unwrap().attr.ino;
    assert!(matches!(fs.read(fifo, 0, &mut [0; 4], false), Err(Error::Invalid(_))));
    assert!(matches!(write(fifo), Err(Error::Invalid(_))));
}

fn fsync_and_sync_keep_everything(fs: &Fs) {
    let dir = fs.dir(Ino::ROOT, "d");
    let file = fs.file(dir, "f");
    fs.put(file, 5, &pattern(10, 9_000));
    for round in 0..3 {
        match round {
            0 => fs.fsync(file, true).unwrap(),
            1 => fs.fsync(file, false).unwrap(),
            _ => fs.sync().unwrap(),
        }
        fs.fsync(dir, false).unwrap();
        assert!(fs.get(file, 5, 9_000) == pattern(10, 9_000), "round {round}");
        assert_eq!(fs.names(dir), ["f"]);
    }
    fs.unlink(dir, name("f")).unwrap();
    fs.fsync(file, false).unwrap();
    assert!(fs.get(file, 5, 9_000) == pattern(10, 9_000), "fsync of a file without a name");
}
