//! Space asked for beforehand (`fallocate`): as much as `statfs` says is there, or nothing.

use std::sync::Arc;

use amphi_fs_bytefs::{ByteFs, FormatOptions, MountOptions, fsck};
use amphi_vfs::{Allocate, Cred, Error, FileSystem, FileType, Ino, Name, WriteMode};

use amphi_memory_device::Memory;

const PAGE: u64 = 4096;
/// Pages that a reservation may need beside what it reserves: nodes of the file's extent tree.
const NODES: u64 = 16;

fn mounted() -> (Arc<Memory>, ByteFs<Memory>) {
    let device = Arc::new(Memory::new(vec![0; 400 << 20]));
    ByteFs::format(&*device, &FormatOptions::default()).unwrap();
    let options = MountOptions { write_back_interval_ns: 0, ..MountOptions::default() };
    let fs = ByteFs::mount(Arc::clone(&device), options).unwrap();
    (device, fs)
}

fn create(fs: &ByteFs<Memory>, name: &str) -> Ino {
    let name = Name::new(name.as_bytes()).unwrap();
    fs.create(Ino::ROOT, name, FileType::Regular, 0o644, 0, &Cred::ROOT).unwrap().attr.ino
}

fn available(fs: &ByteFs<Memory>) -> u64 {
    fs.sync().unwrap();
    fs.statfs().unwrap().blocks_available
}

fn reserve(fs: &ByteFs<Memory>, ino: Ino, pages: u64) -> Result<(), Error> {
    fs.allocate(ino, 0, pages * PAGE, Allocate::Reserve { keep_size: false }, &Cred::ROOT)
}

#[test]
fn what_statfs_promises_can_be_reserved() {
    let (device, fs) = mounted();
    let ino = create(&fs, "f");
    let pages = available(&fs) - NODES;
    reserve(&fs, ino, pages).expect("statfs said that there is space");
    assert!(available(&fs) <= NODES);
    fs.write(ino, (pages - 1) * PAGE, &[7; PAGE as usize], WriteMode::default(), &Cred::ROOT).unwrap();
    fs.unmount().unwrap();
    assert!(fsck::check(&*device, &mut |_| {}).unwrap().is_clean());
}

/// There is a block for each page but not for the nodes of the tree as well, which shows only on the way.
#[test]
fn a_reservation_that_fails_gives_back_what_it_took() {
    const HOLES: u64 = 20_000;
    let (device, fs) = mounted();
    let ino = create(&fs, "f");
    for hole in 0..HOLES {
        fs.write(ino, (2 * hole + 1) * PAGE, &[7; PAGE as usize], WriteMode::default(), &Cred::ROOT).unwrap();
    }
    let rest = available(&fs) - HOLES - 20;
    reserve(&fs, create(&fs, "rest"), rest).unwrap();
    let before = available(&fs);
    assert_eq!(reserve(&fs, ino, 2 * HOLES), Err(Error::NoSpace));
    // The tree that has grown by 20,000 extents of 16 bytes does not shrink again.
    let kept = before - available(&fs);
    assert!(kept <= 16 * HOLES / PAGE + NODES, "{kept} pages are kept");
    let mut page = [0; PAGE as usize];
    fs.read(ino, PAGE, &mut page, false).unwrap();
    assert_eq!(page, [7; PAGE as usize]);
    fs.unmount().unwrap();
    assert!(fsck::check(&*device, &mut |_| {}).unwrap().is_clean());
}

/// A write that goes through the cache in parts has room for all of them or changes nothing.
#[test]
fn a_write_longer_than_the_cache_is_there_as_a_whole_or_not_at_all() {
    const PART: u64 = 64;
    let device = Arc::new(Memory::new(vec![0; 400 << 20]));
    ByteFs::format(&*device, &FormatOptions::default()).unwrap();
    let options = MountOptions {
        page_cache_pages: 256,
        dirty_pages: Some(PART as usize),
        write_back_interval_ns: 0,
        ..MountOptions::default()
    };
    let fs = ByteFs::mount(Arc::clone(&device), options).unwrap();
    let (rest, ino) = (create(&fs, "rest"), create(&fs, "f"));
    reserve(&fs, rest, available(&fs) - 6 * PART).unwrap();
    let before = available(&fs);
    let bytes = vec![7; (8 * PART * PAGE) as usize];
    let write = |at: u64, bytes: &[u8]| fs.write(ino, at, bytes, WriteMode::default(), &Cred::ROOT);
    assert_eq!(write(PAGE, &bytes), Err(Error::NoSpace));
    assert_eq!(fs.getattr(ino).unwrap().size, 0, "a part of it is there");
    assert_eq!(available(&fs), before, "what was promised was not given back");
    let fits = &bytes[..(4 * PART * PAGE) as usize];
    assert_eq!(write(PAGE, fits), Ok(fits.len()));
    fs.unmount().unwrap();
    assert!(fsck::check(&*device, &mut |_| {}).unwrap().is_clean());
}
