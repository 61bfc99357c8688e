//! An image of each file system's format, as the first program that wrote the version left it, is read for
//! ever: everything in it is still there. (Those of ByteFS and of the ext4-like baseline have tests of their
//! own.)
//!
//! `golden/NAME-vVERSION.pages` holds each page that is not all zeros: its number in four little-endian
//! bytes, the highest bit set if it is one of the memory area, then its 4096 bytes. The `.txt` beside it says
//! what is in the image. `AMPHI_WRITE_GOLDEN=1 cargo test -p amphi-volumes golden` writes the images
//! that are not there.

use std::path::PathBuf;
use std::sync::Arc;

use amphi_device::{BlockPort, BytePort, BytePortExt, Lpa, PAGE_BYTES, Structure};
use amphi_ssd::{Firmware, OpenOptions, Profile, Ssd};
use amphi_vfs::{Allocate, Cred, FileSystem, FileType, Ino, Name, Result, WriteMode, XattrMode};
use amphi_volume::{FormatOptions, MountOptions, Needs, Volume};
use amphi_volumes::{Act, Kind};

/// The images: file system and version of its format.
const GOLDEN: [(Kind, u32); 7] = [
    (Kind::Romefs, 1),
    (Kind::Augefs, 1),
    (Kind::Devfs, 1),
    (Kind::F2fslike, 2),
    (Kind::Novalike, 1),
    (Kind::Pmfslike, 1),
    (Kind::Toy, 1),
];

const DEVICE_BYTES: u64 = 8 << 20;
const MEMORY_BYTES: u64 = 1 << 20;
/// In a page's number: it is one of the memory area.
const IN_MEMORY: u32 = 1 << 31;

fn path(kind: Kind, version: u32, ending: &str) -> PathBuf {
    let name = format!("{}-v{version}.{ending}", kind.name());
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../golden").join(name)
}

fn device(kind: Kind) -> Arc<Ssd> {
    let mut profile = Profile::named("free").expect("a built-in profile");
    (profile.flash.channels, profile.flash.ways, profile.flash.pages_per_block) = (1, 1, 16);
    profile.firmware.kind = match kind.identity().needs {
        Needs::MemoryArea => Firmware::Memory,
        Needs::Inside => Firmware::FileSystem,
        Needs::Blocks | Needs::PageView => Firmware::PageCache,
    };
    profile.firmware.memory_bytes = MEMORY_BYTES;
    let options = OpenOptions { free: true, ..OpenOptions::default() };
    Arc::new(Ssd::try_in_memory(&profile, DEVICE_BYTES, &options).expect("a valid profile"))
}

fn memory_pages(kind: Kind) -> u64 {
    match kind.identity().needs {
        Needs::MemoryArea | Needs::Inside => MEMORY_BYTES / PAGE_BYTES as u64,
        Needs::Blocks | Needs::PageView => 0,
    }
}

/// The pages of both sides that are not zeros, as the file has them.
fn contents(kind: Kind, device: &Ssd) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut page = [0; PAGE_BYTES];
    let mut keep = |number: u32, page: &[u8]| {
        if page.iter().any(|byte| *byte != 0) {
            bytes.extend_from_slice(&number.to_le_bytes());
            bytes.extend_from_slice(page);
        }
    };
    for number in 0..DEVICE_BYTES / PAGE_BYTES as u64 {
        device.read(Lpa(number), &mut page, Structure::Other).expect("read");
        keep(number as u32, &page);
    }
    for number in 0..memory_pages(kind) {
        device.load(number * PAGE_BYTES as u64, &mut page, Structure::Other).expect("loaded");
        keep(number as u32 | IN_MEMORY, &page);
    }
    bytes
}

/// A device with the pages of a file.
fn restored(kind: Kind, file: &[u8]) -> Arc<Ssd> {
    let (pages, rest) = file.as_chunks::<{ 4 + PAGE_BYTES }>();
    assert!(rest.is_empty() && pages.len() > 10, "{} pages", pages.len());
    let device = device(kind);
    for page in pages {
        let (number, bytes) = page.split_first_chunk::<4>().expect("four bytes of number");
        let number = u32::from_le_bytes(*number);
        if number & IN_MEMORY == 0 {
            device.write(Lpa(number.into()), bytes, Structure::Other).expect("written");
        } else {
            let at = u64::from(number & !IN_MEMORY) * PAGE_BYTES as u64;
            device.persist(at, bytes, None, Structure::Other).expect("stored");
        }
    }
    device
}

/// One of everything.
fn furnish(fs: &dyn FileSystem) -> Result<()> {
    let (cred, how) = (&Cred { uid: 1000, gid: 100, ..Cred::ROOT }, WriteMode::default());
    let docs = fs.mkdir(Ino::ROOT, Name::new(b"docs")?, 0o750, cred)?.attr.ino;
    let large = fs.create(docs, Name::new(b"large")?, FileType::Regular, 0o640, 0, cred)?.attr.ino;
    let bytes: Vec<u8> = (0..100_000).map(|at| (at / 100 % 251) as u8).collect();
    fs.write(large, 0, &bytes, how, cred)?;
    // Not aligned to anything, and over what is there.
    fs.write(large, 70_001, &[7; 3000], how, cred)?;
    fs.write(large, 72_000, &[9; 100], how, cred)?;
    fs.setxattr(large, b"user.colour", b"green", XattrMode::Create)?;
    fs.link(large, Ino::ROOT, Name::new(b"large too")?)?;
    let sparse = fs.create(Ino::ROOT, Name::new(b"sparse")?, FileType::Regular, 0o600, 0, cred)?.attr.ino;
    for page in 0..8 {
        fs.write(sparse, page * 9 * PAGE_BYTES as u64, &[page as u8 + 1; 100], how, cred)?;
    }
    fs.allocate(sparse, 400_000, 50_000, Allocate::Reserve { keep_size: true }, cred)?;
    fs.setxattr(sparse, b"user.long", &[b'l'; 500], XattrMode::Create)?;
    fs.symlink(docs, Name::new(b"short")?, b"large", cred)?;
    fs.symlink(docs, Name::new(b"long")?, &[b'x'; 200], cred)?;
    fs.create(docs, Name::new(b"console")?, FileType::CharDevice, 0o620, 0x501, &Cred::ROOT)?;
    for number in 0..40 {
        fs.link(large, docs, Name::new(format!("{}{number:02}", "a long name ".repeat(9)).as_bytes())?)?;
    }
    fs.mkdir(docs, Name::new(b"moved")?, 0o700, cred)?;
    fs.rename(docs, Name::new(b"moved")?, Ino::ROOT, Name::new(b"here")?, amphi_vfs::RenameMode::Replace)?;
    fs.sync()
}

/// Everything there is, in one text: attributes, times of modification, listings, contents.
fn walk(fs: &dyn FileSystem) -> Result<String> {
    let mut lines = Vec::new();
    let mut waiting = vec![(String::new(), Ino::ROOT)];
    while let Some((path, ino)) = waiting.pop() {
        let attr = fs.getattr(ino)?;
        let (kind, mtime) = (attr.file_type, attr.mtime);
        let mut line = format!(
            "{path} {kind:?} {:o} {} {} {} {} {:x} {mtime:?}",
            attr.mode, attr.nlink, attr.uid, attr.gid, attr.size, attr.rdev
        );
        let mut names = fs.listxattr(ino)?;
        names.sort();
        for name in names {
            let value = fs.getxattr(ino, &name)?;
            line += &format!(" {}={}", name.escape_ascii(), value.escape_ascii());
        }
        match kind {
            FileType::Directory => fs.readdir(ino, 2, &mut |entry| {
                waiting.push((format!("{path}/{}", entry.name.escape_ascii()), entry.ino));
                true
            })?,
            FileType::Regular => {
                let mut bytes = vec![0; attr.size as usize];
                let read = fs.read(ino, 0, &mut bytes, false)?;
                line += &format!(" {read} bytes, {:08x}", crc32c::crc32c(&bytes[..read]));
            }
            FileType::Symlink => line += &format!(" to {}", fs.readlink(ino)?.escape_ascii()),
            _ => {}
        }
        lines.push(line);
    }
    lines.sort();
    Ok(lines.join("\n") + "\n")
}

/// Writes an image and says what is in it.
struct Write(Kind, u32);

impl Act<Ssd> for Write {
    type Out = ();

    fn on<V: Volume<Ssd>>(self) {
        let device = device(self.0);
        let options =
            FormatOptions { label: "golden".to_owned(), inodes: Some(200), ..FormatOptions::default() };
        V::format(&device, &options).expect("the device can carry it");
        let fs = V::mount(&device, &MountOptions::default()).expect("what was made mounts");
        furnish(&fs).expect("it has room");
        fs.unmount().expect("an idle file system unmounts");
        std::fs::write(path(self.0, self.1, "pages"), contents(self.0, &device)).expect("written");
        let fs = V::mount(&device, &MountOptions::default()).expect("it mounts again");
        std::fs::write(path(self.0, self.1, "txt"), walk(&fs).expect("it can be read")).expect("written");
    }
}

/// Reads an image, by a check and by two mounts.
struct Read(Kind, u32);

impl Act<Ssd> for Read {
    type Out = ();

    fn on<V: Volume<Ssd>>(self) {
        let Self(kind, version) = self;
        let title = V::IDENTITY.title;
        let file = std::fs::read(path(kind, version, "pages")).expect("the golden image exists");
        let text = std::fs::read_to_string(path(kind, version, "txt")).expect("the golden text exists");
        let device = restored(kind, &file);
        assert_eq!(Kind::on(&*device), Some(kind));
        assert_eq!(V::probe(&*device).expect("it is there").label, "golden");
        for read_only in [true, false] {
            let options = MountOptions { read_only, ..MountOptions::default() };
            let fs = V::mount(&device, &options).expect("it can be mounted");
            assert_eq!(walk(&fs).expect("it can be read"), text, "{title}, read-only: {read_only}");
            fs.unmount().expect("an idle file system unmounts");
        }
        let report = V::check(&restored(kind, &file), &mut |_| {}).expect("it can be checked");
        assert!(report.is_clean(), "{title}: {:?}", report.findings);
    }
}

#[test]
fn golden_images_read_as_they_did_when_they_were_written() {
    for (kind, version) in GOLDEN {
        if std::env::var_os("AMPHI_WRITE_GOLDEN").is_some() && !path(kind, version, "pages").exists() {
            kind.with(Write(kind, version));
        }
        kind.with(Read(kind, version));
    }
}
