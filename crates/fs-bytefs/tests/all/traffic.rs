//! What travels: small updates by bytes, large ones by blocks, and no more of either than needed (BY-9,
//! BY-10, BY-11, BY-14, BY-18).

use std::sync::Arc;

use amphi_fs_bytefs::{ByteFs, FormatOptions, MountOptions, Variant};
use amphi_ssd::{Profile, Ssd, Stats};
use amphi_vfs::{Allocate, Cred, FileSystem, FileType, Ino, Name, WriteMode};

fn mounted() -> ByteFs<Ssd> {
    let device = Arc::new(Ssd::in_memory(&Profile::named("free").expect("built in"), 64 << 20));
    ByteFs::format(&*device, &FormatOptions::default()).expect("it can be formatted");
    let options = MountOptions { write_back_interval_ns: 0, ..MountOptions::default() };
    ByteFs::mount(device, options).expect("it can be mounted")
}

/// What `body` makes travel: (bytes by the byte port, pages by the block port, commits).
fn traffic(fs: &ByteFs<Ssd>, body: impl FnOnce()) -> (u64, u64, u64) {
    let before: Stats = fs.device().stats();
    body();
    let after = fs.device().stats();
    (
        after.byte_write.bytes() - before.byte_write.bytes(),
        (after.block_write.bytes() - before.block_write.bytes()) / 4096,
        after.commits - before.commits,
    )
}

/// Unmounts and mounts again, with nothing cached.
trait Remount {
    fn remount(self) -> Self;
}

impl Remount for ByteFs<Ssd> {
    fn remount(self) -> Self {
        let device = Arc::clone(self.device());
        self.unmount().expect("an idle file system unmounts");
        let options = MountOptions { write_back_interval_ns: 0, ..MountOptions::default() };
        Self::mount(device, options).expect("it can be mounted again")
    }
}

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).expect("a valid name")
}

fn file(fs: &ByteFs<Ssd>, text: &str) -> Ino {
    fs.create(Ino::ROOT, name(text), FileType::Regular, 0o644, 0, &Cred::ROOT)
        .expect("it can be created")
        .attr
        .ino
}

fn write(fs: &ByteFs<Ssd>, ino: Ino, offset: u64, data: &[u8]) {
    fs.write(ino, offset, data, WriteMode::default(), &Cred::ROOT).expect("it can be written");
}

#[test]
fn a_create_is_five_lines_by_bytes_and_one_commit() {
    let fs = mounted();
    file(&fs, "the first one also gives the directory a block");
    let (bytes, pages, commits) = traffic(&fs, || {
        file(&fs, "second");
    });
    // Entry, the new inode's two halves, the directory's lower half, one group of the inode bitmap.
    assert_eq!((bytes, pages, commits), (5 * 64, 0, 1));
}

#[test]
fn names_of_any_length_take_64_to_320_bytes() {
    let fs = mounted();
    file(&fs, "first");
    for (length, lines) in [(1, 1), (56, 1), (57, 2), (120, 2), (121, 3), (255, 5)] {
        let long = "n".repeat(length);
        let (bytes, ..) = traffic(&fs, || {
            file(&fs, &long);
        });
        assert_eq!(bytes, (4 + lines) * 64, "a name of {length} bytes");
        fs.unlink(Ino::ROOT, name(&long)).expect("it can be removed");
    }
}

#[test]
fn a_change_of_attributes_is_one_line() {
    let fs = mounted();
    let ino = file(&fs, "f");
    let change = amphi_vfs::SetAttr { mode: Some(0o600), ..amphi_vfs::SetAttr::default() };
    let (bytes, pages, _) = traffic(&fs, || {
        fs.setattr(ino, &change, &Cred::ROOT).expect("it can be changed");
    });
    assert_eq!((bytes, pages), (64, 0), "the inode's lower half");
}

#[test]
fn a_miss_of_an_inode_reads_its_page_once_for_all_that_are_in_it() {
    let fs = mounted();
    for number in 0..8 {
        file(&fs, &number.to_string());
    }
    let fs = fs.remount();
    let inodes_read = || {
        let by_block = fs.device().stats().block_read.structures;
        by_block.iter().find(|part| part.structure == "inode").map_or(0, |part| part.bytes)
    };
    fs.lookup(Ino::ROOT, name("0")).expect("it is there");
    let before = inodes_read();
    assert!(before > 0, "the root's page was read by block");
    for number in 1..8 {
        fs.lookup(Ino::ROOT, name(&number.to_string())).expect("it is there");
    }
    assert_eq!(inodes_read(), before, "neighbours of an inode in a page that was read");
}

#[test]
fn without_duplicates_a_modified_line_goes_by_block() {
    let device = Arc::clone(mounted().device());
    let options =
        MountOptions { write_back_interval_ns: 0, variant: Variant::Log, ..MountOptions::default() };
    let fs = ByteFs::mount(device, options).expect("it can be mounted");
    let ino = file(&fs, "f");
    write(&fs, ino, 0, &[1; 4096 * 4]);
    fs.fsync(ino, false).expect("it can be synced");
    write(&fs, ino, 4096, &[2; 64]);
    let (bytes, pages, _) = traffic(&fs, || fs.fsync(ino, true).expect("it can be synced"));
    assert_eq!((bytes, pages), (0, 1));
}

#[test]
fn less_than_an_eighth_of_a_page_goes_by_bytes_and_more_by_block() {
    let fs = mounted();
    let ino = file(&fs, "f");
    write(&fs, ino, 0, &[1; 4096 * 4]);
    fs.fsync(ino, false).expect("it can be synced");
    for (modified, by_bytes) in
        [(1, true), (64, true), (448, true), (449, false), (512, false), (4096, false)]
    {
        let fill = vec![(modified % 251) as u8 + 2; modified];
        write(&fs, ino, 4096, &fill);
        let (bytes, pages, _) = traffic(&fs, || fs.fsync(ino, true).expect("it can be synced"));
        let lines = modified.div_ceil(64) as u64;
        let expected = if by_bytes { (lines * 64, 0) } else { (0, 1) };
        assert_eq!((bytes, pages), expected, "{modified} bytes modified");
    }
}

#[test]
fn an_extent_that_comes_is_a_line_of_its_node() {
    let fs = mounted();
    let ino = file(&fs, "f");
    let put = |page: u64| {
        write(&fs, ino, page * 4096, &[1; 4096]);
        traffic(&fs, || fs.fsync(ino, false).expect("it can be synced"))
    };
    // Holes between them, so that each is an extent: some hundred leaves of 16 B.
    for page in 0..100 {
        put(2 * page);
    }
    let (bytes, pages, _) = put(500);
    assert_eq!(pages, 1, "its data");
    assert!(bytes <= 6 * 64, "{bytes} bytes: the inode, the bitmap and one line of leaves");
}

#[test]
fn with_sync_writes_nothing_is_left_to_fsync() {
    let device = Arc::clone(mounted().device());
    let options = MountOptions { write_back_interval_ns: 0, sync_writes: true, ..MountOptions::default() };
    let fs = ByteFs::mount(device, options).expect("it can be mounted");
    assert!(fs.promise().data_durable_on_return);
    let ino = file(&fs, "f");
    write(&fs, ino, 0, &[1; 4096 * 4]);
    let zero = Allocate::Zero { keep_size: true };
    let changes: [(&str, &dyn Fn()); 3] = [
        ("an overwrite", &|| write(&fs, ino, 4096, &[2; 64])),
        ("an append", &|| write(&fs, ino, 4096 * 4, &[3; 10])),
        ("zeros", &|| fs.allocate(ino, 100, 1000, zero, &Cred::ROOT).expect("it can be zeroed")),
    ];
    for (what, change) in changes {
        let (bytes, pages, _) = traffic(&fs, change);
        assert!(bytes + pages > 0, "{what} travels");
        let left = traffic(&fs, || fs.fsync(ino, false).expect("it can be synced"));
        assert_eq!(left, (0, 0, 0), "{what} has travelled");
    }
}

#[test]
fn direct_io_up_to_512_bytes_goes_by_bytes_and_more_by_block() {
    let fs = mounted();
    let ino = file(&fs, "f");
    write(&fs, ino, 0, &[1; 4096 * 4]);
    fs.fsync(ino, false).expect("it can be synced");
    let how = WriteMode { direct: true, ..WriteMode::default() };
    for (offset, len, pages) in
        [(0, 64, 0), (4096 - 256, 512, 0), (8192, 512, 0), (4096, 4096, 1), (0, 4 * 4096, 4)]
    {
        let data = vec![len as u8 ^ 0x55; len];
        let (bytes, blocks, commits) = traffic(&fs, || {
            assert_eq!(fs.write(ino, offset, &data, how, &Cred::ROOT), Ok(len));
        });
        let by_bytes = if pages == 0 { len as u64 } else { 0 };
        assert_eq!((bytes, blocks, commits), (by_bytes, pages, 0), "{len} bytes at {offset}");
        let mut back = vec![0; len];
        assert_eq!(fs.read(ino, offset, &mut back, false), Ok(len));
        assert!(back == data, "a buffered read sees what a direct write of {len} bytes wrote");
    }
    let uncached = fs.remount();
    let before = uncached.device().stats();
    let ino = uncached.lookup(Ino::ROOT, name("f")).expect("it is there").attr.ino;
    let mut small = [0; 512];
    assert_eq!(uncached.read(ino, 100, &mut small, true), Ok(512));
    let after = uncached.device().stats();
    assert_eq!(after.byte_read.bytes() - before.byte_read.bytes(), 512, "a small direct read loads bytes");
}

#[test]
fn bytes_written_as_they_were_do_not_travel() {
    let fs = mounted();
    let ino = file(&fs, "f");
    write(&fs, ino, 0, &[1; 4096]);
    fs.fsync(ino, false).expect("it can be synced");
    write(&fs, ino, 0, &[1; 4096]);
    let (bytes, pages, _) = traffic(&fs, || fs.fsync(ino, true).expect("it can be synced"));
    assert_eq!((bytes, pages), (0, 0));
}

#[test]
fn contiguous_pages_are_one_command() {
    let fs = mounted();
    let ino = file(&fs, "f");
    write(&fs, ino, 0, &vec![1; 64 * 4096]);
    let before = fs.device().stats().block_write.commands();
    fs.fsync(ino, false).expect("it can be synced");
    assert_eq!(fs.device().stats().block_write.commands() - before, 1);
}

#[test]
fn a_page_written_as_a_whole_goes_by_bytes_only_if_it_is_almost_as_it_was() {
    let fs = mounted();
    let ino = file(&fs, "f");
    write(&fs, ino, 0, &[1; 4096]);
    fs.fsync(ino, false).expect("it can be synced");
    for (lines, by_bytes) in [(1, true), (7, true), (8, false), (64, false)] {
        let mut page = vec![1; 4096];
        page[..lines * 64].fill(lines as u8 + 1);
        write(&fs, ino, 0, &page);
        let (bytes, pages, _) = traffic(&fs, || fs.fsync(ino, true).expect("it can be synced"));
        let expected = if by_bytes { (lines as u64 * 64, 0) } else { (0, 1) };
        assert_eq!((bytes, pages), expected, "{lines} lines modified");
        write(&fs, ino, 0, &[1; 4096]);
        fs.fsync(ino, true).expect("it can be synced");
    }
}

#[test]
fn a_page_written_as_a_whole_and_then_cut_short_is_written() {
    let fs = mounted();
    let ino = file(&fs, "f");
    write(&fs, ino, 0, &[1; 4096]);
    fs.fsync(ino, false).expect("it can be synced");
    write(&fs, ino, 0, &[2; 4096]);
    let shorter = amphi_vfs::SetAttr { size: Some(1000), ..amphi_vfs::SetAttr::default() };
    fs.setattr(ino, &shorter, &Cred::ROOT).expect("it can be cut short");
    fs.fsync(ino, false).expect("it can be synced");
    let fs = fs.remount();
    let ino = fs.lookup(Ino::ROOT, name("f")).expect("it is there").attr.ino;
    let mut back = [0; 1000];
    assert_eq!(fs.read(ino, 0, &mut back, false), Ok(1000));
    assert_eq!(back, [2; 1000]);
}
