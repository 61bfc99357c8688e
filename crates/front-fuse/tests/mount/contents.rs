//! File contents through the kernel: its page cache, its idea of the size, several descriptors at once.

use std::fs::{File, OpenOptions, read, write};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};

use amphi_model::Limits;
use amphi_vfs::{FileSystem, Ino, Name};
use rustix::fs::{FallocateFlags, OFlags, SeekFrom as Whence, fallocate, seek};

use crate::mounted::{Mounted, options};

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 7 + i / 251) as u8).collect()
}

#[test]
fn files_keep_what_is_written() {
    let Some(mounted) = Mounted::new() else { return };
    for length in [0, 1, 4095, 4096, 4097, 128 << 10, (3 << 20) + 5] {
        let path = mounted.path(&length.to_string());
        write(&path, pattern(length)).unwrap();
        assert_eq!(path.metadata().unwrap().len(), length as u64);
        assert!(read(&path).unwrap() == pattern(length), "{length} bytes");
    }
}

#[test]
fn truncate_and_holes() {
    let Some(mounted) = Mounted::new() else { return };
    let path = mounted.path("f");
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    file.write_all_at(&pattern(10_000), 0).unwrap();
    file.set_len(5_001).unwrap();
    file.set_len(20_000).unwrap();
    let all = read(&path).unwrap();
    assert!(all[..5_001] == pattern(10_000)[..5_001] && all[5_001..].iter().all(|&b| b == 0));
    file.write_all_at(b"far", 1 << 32).unwrap();
    let metadata = path.metadata().unwrap();
    assert_eq!(metadata.len(), (1 << 32) + 3);
    assert!(metadata.blocks() * 512 < 64 << 10, "{} sectors", metadata.blocks());
    assert_eq!(seek(&file, Whence::Data(100_000)).unwrap(), 1 << 32);
    assert_eq!(seek(&file, Whence::Hole(0)).unwrap(), 8_192);
    assert_eq!(seek(&file, Whence::Data(1 << 33)), Err(rustix::io::Errno::NXIO));
    drop(file);
    assert_eq!(
        OpenOptions::new().write(true).truncate(true).open(&path).unwrap().metadata().unwrap().len(),
        0
    );
    assert_eq!(read(&path).unwrap(), b"");
}

#[test]
fn appends_from_two_descriptors_do_not_overwrite() {
    let Some(mounted) = Mounted::new() else { return };
    let path = mounted.path("log");
    let open = || OpenOptions::new().append(true).create(true).open(&path).unwrap();
    let (mut one, mut two) = (open(), open());
    for round in 0..100 {
        one.write_all(format!("one {round}\n").as_bytes()).unwrap();
        two.write_all(format!("two {round}\n").as_bytes()).unwrap();
    }
    let threads: Vec<_> = (0..4)
        .map(|number| {
            let mut file = open();
            std::thread::spawn(move || {
                for round in 0..200 {
                    file.write_all(format!("thread {number} {round}\n").as_bytes()).unwrap();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let text = String::from_utf8(read(&path).unwrap()).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 200 + 800);
    lines.sort_unstable();
    lines.dedup();
    assert_eq!(lines.len(), 1_000, "a line was overwritten or torn");
}

#[test]
fn descriptors_see_each_others_writes() {
    let Some(mounted) = Mounted::new() else { return };
    let path = mounted.path("f");
    write(&path, b"old old old").unwrap();
    let mut reader = File::open(&path).unwrap();
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    write(&path, b"new").unwrap();
    text.clear();
    reader.seek(SeekFrom::Start(0)).unwrap();
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "new");
}

#[test]
fn direct_and_buffered_io_agree() {
    let Some(mounted) = Mounted::new() else { return };
    let path = mounted.path("f");
    write(&path, pattern(64 << 10)).unwrap();
    let direct_flag = OFlags::DIRECT.bits() as i32;
    let direct = OpenOptions::new().read(true).write(true).custom_flags(direct_flag).open(&path).unwrap();
    let buffered = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let mut page = vec![0; 8192];
    buffered.read_exact_at(&mut page, 0).unwrap();
    let start = page.as_ptr().align_offset(4096);
    page[start..start + 4096].fill(b'd');
    direct.write_all_at(&page[start..start + 4096], 4096).unwrap();
    let mut seen = vec![0; 4096];
    buffered.read_exact_at(&mut seen, 4096).unwrap();
    assert!(seen.iter().all(|&b| b == b'd'), "a buffered read after a direct write");
    buffered.write_all_at(&[b'b'; 100], 4096).unwrap();
    direct.read_exact_at(&mut page[start..start + 4096], 4096).unwrap();
    assert!(page[start..start + 100].iter().all(|&b| b == b'b'), "a direct read after a buffered write");
}

#[test]
fn data_reach_the_file_system_without_fsync() {
    let Some(mounted) = Mounted::new() else { return };
    let mut file = File::create(mounted.path("f")).unwrap();
    file.write_all(b"written through").unwrap();
    let inode = mounted.model.lookup(Ino::ROOT, Name::new(b"f").unwrap()).unwrap().attr;
    assert_eq!(inode.size, 15, "there is no write-back cache between the kernel and the file system");
    mounted.model.forget(inode.ino, 1);
    file.sync_all().unwrap();
    file.sync_data().unwrap();
    File::open(mounted.root()).unwrap().sync_all().unwrap();
}

#[test]
fn a_full_file_system_says_so_and_recovers() {
    let limits = Limits { pages: 256, ..Limits::default() };
    let Some(mounted) = Mounted::with(limits, &options()) else { return };
    let path = mounted.path("f");
    let error = write(&path, pattern(4 << 20)).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(28), "{error}");
    let stat = rustix::fs::statvfs(mounted.root()).unwrap();
    assert_eq!((stat.f_bsize, stat.f_blocks, stat.f_namemax), (4096, 256, 255));
    assert!(stat.f_bfree < 256);
    std::fs::remove_file(&path).unwrap();
    write(&path, pattern(512 << 10)).unwrap();
    assert!(read(&path).unwrap() == pattern(512 << 10));
}

#[test]
fn too_large_and_read_only_have_their_errno() {
    let Some(mounted) = Mounted::new() else { return };
    let file = File::create(mounted.path("f")).unwrap();
    assert_eq!(file.write_all_at(b"x", 1 << 50).unwrap_err().raw_os_error(), Some(27));
    assert_eq!(file.set_len(1 << 50).unwrap_err().raw_os_error(), Some(27));
    mounted.model.set_read_only(true);
    assert_eq!(file.write_all_at(b"x", 0).unwrap_err().raw_os_error(), Some(30));
    assert_eq!(File::create(mounted.path("g")).unwrap_err().raw_os_error(), Some(30));
}

#[test]
fn ranges_are_reserved_punched_and_zeroed() {
    let Some(mounted) = Mounted::new() else { return };
    let path = mounted.path("f");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
    file.write_all_at(&pattern(40_000), 0).unwrap();
    let read_all = || read(&path).unwrap();
    assert!(read_all() == pattern(40_000), "in the page cache now");
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, punch, 5_000, 20_000).unwrap();
    let mut expected = pattern(40_000);
    expected[5_000..25_000].fill(0);
    assert!(read_all() == expected, "the page cache does not keep what was punched");
    fallocate(&file, FallocateFlags::ZERO_RANGE, 39_000, 6_000).unwrap();
    expected[39_000..].fill(0);
    expected.resize(45_000, 0);
    assert!(read_all() == expected);
    fallocate(&file, FallocateFlags::KEEP_SIZE, 100_000, 50_000).unwrap();
    assert_eq!(path.metadata().unwrap().len(), 45_000);
    fallocate(&file, FallocateFlags::empty(), 100_000, 50_000).unwrap();
    assert_eq!(path.metadata().unwrap().len(), 150_000);
    let collapse = fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4_096);
    assert_eq!(collapse, Err(rustix::io::Errno::OPNOTSUPP));
}

#[test]
fn large_requests_arrive_whole() {
    const MIB: usize = 1 << 20;
    let Some(mounted) = Mounted::new() else { return };
    let data: Vec<u8> = (0..5 * MIB + 4096).map(|at| (at * 7 % 253) as u8).collect();
    let path = mounted.path("large");
    write(&path, &data).unwrap();
    assert!(read(&path).unwrap() == data);
    let direct =
        OpenOptions::new().read(true).custom_flags(OFlags::DIRECT.bits() as i32).open(&path).unwrap();
    let mut buffer = vec![0; data.len() + 4096];
    let aligned = buffer.as_ptr().align_offset(4096);
    direct.read_exact_at(&mut buffer[aligned..aligned + data.len()], 0).unwrap();
    assert!(buffer[aligned..aligned + data.len()] == data, "read directly");
}
