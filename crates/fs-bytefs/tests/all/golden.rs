//! `golden/bytefs-vN.pages` was written by the first program that wrote version N of ByteFS's format. The
//! current version's is read, byte for byte; an older one, too, or it is refused by its version. A file holds
//! each page of the device that is not all zeros: its number in four little-endian bytes, then its 4096
//! bytes. `AMPHI_WRITE_GOLDEN=1 cargo test -p amphi-fs-bytefs golden::` writes the current version's.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::crash::walk::walk;
use amphi_device::{BlockPort, Device, Lpa, PAGE_BYTES, Structure};
use amphi_fs_bytefs::format::{FormatError, VERSION};
use amphi_fs_bytefs::{ByteFs, FormatOptions, MountError, MountOptions, fsck};
use amphi_rt::Sim;
use amphi_ssd::{Profile, Ssd};
use amphi_vfs::{Cred, FileSystem, FileType, Ino, Name, WriteMode, XattrMode};

const PAGES: u64 = 640;

fn golden(version: u32) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("../../golden/bytefs-v{version}.pages"))
}

fn device() -> Ssd {
    Ssd::in_memory(&Profile::named("free").expect("built in"), PAGES * PAGE_BYTES as u64)
}

fn options() -> MountOptions {
    MountOptions { write_back_interval_ns: 0, ..MountOptions::default() }
}

/// Byte `at` of the large file.
fn pattern(at: usize) -> u8 {
    (at / 100 % 251) as u8
}

/// One of everything: a file with a hole and many extents, hard links, both kinds of symbolic links,
/// attributes, a full page of directory entries, a device node.
fn furnish(fs: &dyn FileSystem) -> amphi_vfs::Result<()> {
    let (cred, how) = (&Cred { uid: 1000, gid: 100, ..Cred::ROOT }, WriteMode::default());
    let docs = fs.mkdir(Ino::ROOT, Name::new(b"docs")?, 0o750, cred)?.attr.ino;
    let large = fs.create(docs, Name::new(b"large")?, FileType::Regular, 0o640, 0, cred)?.attr.ino;
    fs.write(large, 0, &(0..50_000).map(pattern).collect::<Vec<_>>(), how, cred)?;
    fs.setxattr(large, b"user.colour", b"green", XattrMode::Create)?;
    fs.link(large, Ino::ROOT, Name::new(b"large too")?)?;
    let sparse = fs.create(Ino::ROOT, Name::new(b"sparse")?, FileType::Regular, 0o600, 0, cred)?.attr.ino;
    for page in 0..12 {
        fs.write(sparse, page * 2 * PAGE_BYTES as u64, &[page as u8 + 1; 100], how, cred)?;
    }
    fs.symlink(docs, Name::new(b"short")?, b"large", cred)?;
    fs.symlink(docs, Name::new(b"long")?, &[b'x'; 200], cred)?;
    fs.create(docs, Name::new(b"console")?, FileType::CharDevice, 0o620, 0x501, &Cred::ROOT)?;
    for number in 0..70 {
        let name = format!("entry {number:02}");
        fs.create(docs, Name::new(name.as_bytes())?, FileType::Regular, 0o644, 0, cred)?;
    }
    for number in (0..70).step_by(7) {
        fs.unlink(docs, Name::new(format!("entry {number:02}").as_bytes())?)?;
    }
    fs.sync()
}

fn write_golden() {
    let device = Arc::new(device());
    let format = FormatOptions { label: "golden".to_owned(), ..FormatOptions::default() };
    ByteFs::format(&*device, &format).expect("formats");
    let fs = ByteFs::mount(Arc::clone(&device), options()).expect("mounts");
    furnish(&fs).expect("has room");
    fs.unmount().expect("unmounts");
    let mut file = Vec::new();
    for number in 0..device.capacity_pages() {
        let mut page = [0; PAGE_BYTES];
        device.read(Lpa(number), &mut page, Structure::Other).expect("reads");
        if page.iter().any(|&byte| byte != 0) {
            file.extend_from_slice(&(number as u32).to_le_bytes());
            file.extend_from_slice(&page);
        }
    }
    std::fs::write(golden(VERSION), file).expect("written");
}

/// A device with the golden file's pages.
fn restored(version: u32) -> Ssd {
    let path = golden(version);
    let file = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let device = device();
    let (pages, rest) = file.as_chunks::<{ 4 + PAGE_BYTES }>();
    assert!(rest.is_empty() && pages.len() > 20, "{} pages, {} bytes left", pages.len(), rest.len());
    for page in pages {
        let number = u32::from_le_bytes(page[..4].try_into().expect("four bytes"));
        device.write(Lpa(u64::from(number)), &page[4..], Structure::Other).expect("writes");
    }
    device
}

#[test]
fn the_golden_file_system_stays_readable() {
    if std::env::var("AMPHI_WRITE_GOLDEN").is_ok() {
        Sim::new(7).run(write_golden);
    }
    for version in 1..=VERSION {
        let device = restored(version);
        match ByteFs::mount(Arc::new(device), options()) {
            Ok(fs) => drop(fs),
            Err(MountError::Format(FormatError::Version(found))) if version < VERSION => {
                assert_eq!(found, version);
                continue;
            }
            Err(error) => panic!("version {version}: {error}"),
        }
        reads_as_written(restored(version));
    }
}

fn reads_as_written(device: Ssd) {
    let report = fsck::check(&device, &mut |_| ()).expect("there is a file system");
    assert!(report.findings.is_empty() && report.cleanly_unmounted, "{:#?}", report.findings);
    let fs = ByteFs::mount(Arc::new(device), options()).expect("it mounts");
    assert_eq!((fs.info().label.as_str(), fs.info().inodes), ("golden", 512));

    let tree = walk(&fs);
    let names = |prefix: &str| tree.keys().filter(|path| path.starts_with(prefix)).count();
    assert_eq!((tree.len(), names("/docs/entry ")), (7 + 60, 60));
    let seen: BTreeMap<_, _> = tree
        .iter()
        .filter(|(path, _)| !path.starts_with("/docs/entry "))
        .map(|(path, seen)| (path.as_str(), (seen.file_type, seen.mode, seen.nlink)))
        .collect();
    let expected = BTreeMap::from([
        ("/docs", (FileType::Directory, 0o750, 2)),
        ("/docs/console", (FileType::CharDevice, 0o620, 1)),
        ("/docs/large", (FileType::Regular, 0o640, 2)),
        ("/docs/long", (FileType::Symlink, 0o777, 1)),
        ("/docs/short", (FileType::Symlink, 0o777, 1)),
        ("/large too", (FileType::Regular, 0o640, 2)),
        ("/sparse", (FileType::Regular, 0o600, 1)),
    ]);
    assert_eq!(seen, expected);
    let data = |path: &str| tree[path].data.as_slice();
    assert!(data("/docs/large").iter().enumerate().all(|(at, &byte)| byte == pattern(at)));
    assert_eq!((data("/docs/large").len(), data("/large too")), (50_000, data("/docs/large")));
    assert_eq!((data("/docs/short"), data("/docs/long")), (&b"large"[..], &[b'x'; 200][..]));
    assert_eq!(tree["/docs/large"].xattrs, BTreeMap::from([(b"user.colour".to_vec(), b"green".to_vec())]));
    let sparse = data("/sparse");
    assert_eq!(sparse.len(), 22 * PAGE_BYTES + 100);
    for (at, &byte) in sparse.iter().enumerate() {
        let (page, offset) = (at / PAGE_BYTES, at % PAGE_BYTES);
        let due = if page % 2 == 0 && offset < 100 { page / 2 + 1 } else { 0 };
        assert_eq!(usize::from(byte), due, "byte {at} of /sparse");
    }
    let attr = fs.lookup(Ino::ROOT, Name::new(b"sparse").expect("a name")).expect("there").attr;
    assert_eq!((attr.uid, attr.gid), (1000, 100));

    // It goes on living: what an older program wrote can be changed and is sound afterwards.
    let cred = &Cred::ROOT;
    fs.write(attr.ino, 5, b"changed", WriteMode::default(), cred).expect("writes");
    fs.unlink(Ino::ROOT, Name::new(b"large too").expect("a name")).expect("unlinks");
    fs.forget(attr.ino, 1);
    let device = Arc::clone(fs.device());
    fs.unmount().expect("unmounts");
    let report = fsck::check(&*device, &mut |_| ()).expect("there is a file system");
    assert!(report.findings.is_empty(), "{:#?}", report.findings);
}
