//! A device that fails: the operation that meets it says so, the file system turns read-only with one line in
//! the log, what can be read is read, and nothing that was reported as durable is lost.

// The log's lines arrive through a writer that the subscriber locks itself.
#![allow(clippy::disallowed_types)]

use std::io::Write;
use std::sync::{Arc, Mutex};

use amphi_conformance::random;
use amphi_fs_bytefs::{ByteFs, FormatOptions, MountError, MountOptions, fsck};
use amphi_ssd::{Profile, Ssd};
use amphi_vfs::{Cred, Error, FileSystem, FileType, Ino, Name, SetAttr, WriteMode};

use amphi_memory_device::Memory;

/// Collects what is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// Runs `body` and returns the lines that it logs.
    fn of(body: impl FnOnce()) -> Vec<String> {
        let log = Self::default();
        let writer = log.clone();
        let subscriber =
            tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(subscriber, body);
        let bytes = log.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
    }
}

fn options() -> MountOptions {
    MountOptions { write_back_interval_ns: 0, ..MountOptions::default() }
}

fn formatted() -> Arc<Memory> {
    let device = Arc::new(Memory::new(vec![0; 16 << 20]));
    ByteFs::format(&*device, &FormatOptions::default()).unwrap();
    device
}

fn mount(device: &Arc<Memory>) -> ByteFs<Memory> {
    ByteFs::mount(Arc::clone(device), options()).unwrap()
}

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
}

fn file(fs: &ByteFs<Memory>, text: &str, contents: &[u8]) -> Ino {
    let made = fs.create(Ino::ROOT, name(text), FileType::Regular, 0o644, 0, &Cred::ROOT).unwrap().attr.ino;
    fs.write(made, 0, contents, WriteMode::default(), &Cred::ROOT).unwrap();
    fs.fsync(made, false).unwrap();
    made
}

#[test]
fn a_failing_device_makes_the_file_system_read_only_with_one_line_in_the_log() {
    type Change = fn(&ByteFs<Memory>, Ino) -> Result<(), Error>;
    let changes: [(&str, Change); 6] = [
        ("create", |fs, _| {
            fs.create(Ino::ROOT, name("new"), FileType::Regular, 0o644, 0, &Cred::ROOT).map(drop)
        }),
        ("rename", |fs, _| {
            fs.rename(Ino::ROOT, name("f"), Ino::ROOT, name("g"), Default::default()).map(drop)
        }),
        ("unlink", |fs, _| fs.unlink(Ino::ROOT, name("f")).map(drop)),
        ("chmod", |fs, ino| {
            fs.setattr(ino, &SetAttr { mode: Some(0), ..SetAttr::default() }, &Cred::ROOT).map(drop)
        }),
        ("fsync", |fs, ino| {
            fs.write(ino, 0, &[2; 20_000], WriteMode::default(), &Cred::ROOT)?;
            fs.fsync(ino, false)
        }),
        ("a direct write", |fs, ino| {
            let mode = WriteMode { direct: true, ..WriteMode::default() };
            fs.write(ino, 0, &[2; 4096], mode, &Cred::ROOT).map(drop)
        }),
    ];
    for (what, change) in changes {
        for changes_before in 0..3 {
            let device = formatted();
            let fs = mount(&device);
            let ino = file(&fs, "f", &[1; 10_000]);
            device.lose_power_after(changes_before);
            let mut failed = false;
            let lines = Log::of(|| {
                let outcome = change(&fs, ino);
                failed = matches!(outcome, Err(Error::Io(_)));
                assert!(failed || outcome.is_ok(), "{what}: {outcome:?}");
                if failed {
                    for _ in 0..3 {
                        let again = fs.mkdir(Ino::ROOT, name("later"), 0o755, &Cred::ROOT).map(drop);
                        assert_eq!(again, Err(Error::ReadOnly), "{what}, then mkdir");
                    }
                    let mut bytes = [0; 10];
                    assert_eq!(fs.read(ino, 0, &mut bytes, false), Ok(10), "{what}, then a read");
                    assert!(fs.lookup(Ino::ROOT, name("nothing")).is_err());
                }
            });
            if !failed {
                continue;
            }
            assert!(fs.failure().is_some());
            let about: Vec<_> = lines.iter().filter(|line| line.contains("read-only")).collect();
            assert_eq!((about.len(), lines.len()), (1, 1), "{what}: {lines:#?}");
            assert!(about[0].contains("ERROR") && about[0].contains("amphi fsck"), "{}", about[0]);
            assert!(fs.unmount().is_err(), "{what}: an unmount that cannot write says so");
            device.power_on();
            let fs = mount(&device);
            assert_eq!(fs.mkdir(Ino::ROOT, name("later"), 0o755, &Cred::ROOT).map(drop), Ok(()), "{what}");
            fs.unmount().unwrap();
            assert!(fsck::check(&*device, &mut |_| ()).unwrap().is_clean(), "{what}");
        }
    }
}

#[test]
fn a_page_that_cannot_be_read_is_an_error_and_no_zeros() {
    let device = formatted();
    let fs = mount(&device);
    let (bad, good) = (file(&fs, "bad", &[7; 4096]), file(&fs, "good", &[8; 4096]));
    fs.unmount().unwrap();
    let contents = device.contents();
    let page = contents.chunks(4096).position(|page| page.iter().all(|&byte| byte == 7)).unwrap();
    device.spoil(page as u64);
    let fs = mount(&device);
    let mut bytes = [0; 4096];
    for direct in [false, true] {
        assert!(matches!(fs.read(bad, 0, &mut bytes, direct), Err(Error::Io(_))), "direct: {direct}");
        assert_eq!(fs.read(good, 0, &mut bytes, direct), Ok(4096));
        assert!(bytes == [8; 4096]);
    }
    // Other files are none the worse.
    assert_eq!(fs.mkdir(Ino::ROOT, name("d"), 0o755, &Cred::ROOT).map(drop), Ok(()));
}

#[test]
fn an_interrupted_format_leaves_no_file_system() {
    let count = |device: &Memory, allowed: u64| {
        device.lose_power_after(allowed);
        let made = ByteFs::format(device, &FormatOptions::default());
        device.power_on();
        made
    };
    let complete = (0..).find(|&allowed| count(&Memory::new(vec![0; 16 << 20]), allowed).is_ok()).unwrap();
    assert!(complete > 2, "a format of {complete} writes");
    for allowed in 0..complete {
        // Over an older file system with files in it, of which nothing may be left to be mistaken for the new
        // one's.
        let device = formatted();
        let fs = mount(&device);
        file(&fs, "old", b"of before");
        fs.unmount().unwrap();
        assert!(count(&device, allowed).is_err());
        match ByteFs::mount(Arc::clone(&device), options()) {
            Err(MountError::Format(error)) => {
                assert!(error.to_string().contains("not a ByteFS"), "after {allowed} writes: {error}");
            }
            Err(error) => panic!("after {allowed} writes: {error}"),
            // Nothing has been written yet: the older one is whole.
            Ok(fs) => {
                assert_eq!(allowed, 0, "mounted after {allowed} of {complete} writes");
                assert!(fs.lookup(Ino::ROOT, name("old")).is_ok());
            }
        }
        ByteFs::format(&*device, &FormatOptions::default()).unwrap();
        assert!(fsck::check(&*device, &mut |_| ()).unwrap().is_clean(), "made again after {allowed} writes");
    }
}

#[test]
fn a_full_file_system_is_consistent_and_works_again() {
    for seed in 0..4 {
        let device = formatted();
        let fs = mount(&device);
        let filler = fs.create(Ino::ROOT, name("filler"), FileType::Regular, 0o600, 0, &Cred::ROOT).unwrap();
        let filler = filler.attr.ino;
        let mut at = 0;
        for step in [65_536, 4096] {
            while fs.write(filler, at, &vec![seed as u8; step], WriteMode::default(), &Cred::ROOT).is_ok() {
                at += step as u64;
            }
            fs.fsync(filler, false).unwrap();
        }
        assert!(fs.statfs().unwrap().blocks_available < 40, "{:?}", fs.statfs());
        let model = random::adopt(&fs).unwrap();
        let fs = Arc::new(fs);
        let model = random::run_on(&fs, model, seed, 400)
            .unwrap_or_else(|mismatch| panic!("seed {seed}: {mismatch:?}"));
        assert_eq!(fs.unlink(Ino::ROOT, name("filler")).map(drop), Ok(()), "removal works at 100 %");
        FileSystem::unlink(&model, Ino::ROOT, name("filler")).unwrap();
        fs.forget(filler, 1);
        assert_eq!(
            fs.create(Ino::ROOT, name("again"), FileType::Regular, 0o600, 0, &Cred::ROOT).map(drop),
            Ok(())
        );
        let fs = Arc::into_inner(fs).unwrap();
        fs.unmount().unwrap();
        let report = fsck::check(&*device, &mut |_| ()).unwrap();
        assert!(report.is_clean(), "seed {seed}: {:?}", report.findings);
    }
}

#[test]
fn no_inode_left_is_no_space_and_leaves_the_rest_usable() {
    let device = Arc::new(Memory::new(vec![0; 16 << 20]));
    ByteFs::format(&*device, &FormatOptions { inodes: Some(512), ..FormatOptions::default() }).unwrap();
    let fs = mount(&device);
    let mut made = 0;
    let error = loop {
        match fs.create(Ino::ROOT, name(&format!("f{made}")), FileType::Regular, 0o600, 0, &Cred::ROOT) {
            Ok(entry) => fs.forget(entry.attr.ino, 1),
            Err(error) => break error,
        }
        made += 1;
    };
    assert_eq!((error, made), (Error::NoInodes, 510), "all but number 0 and the root");
    assert_eq!(fs.statfs().unwrap().inodes_free, 0);
    assert_eq!(fs.mkdir(Ino::ROOT, name("d"), 0o755, &Cred::ROOT).map(drop), Err(Error::NoInodes));
    let one = fs.lookup(Ino::ROOT, name("f7")).unwrap().attr.ino;
    fs.write(one, 0, b"data have room", WriteMode::default(), &Cred::ROOT).unwrap();
    fs.unlink(Ino::ROOT, name("f8")).unwrap();
    assert_eq!(fs.mkdir(Ino::ROOT, name("d"), 0o755, &Cred::ROOT).map(drop), Ok(()));
    fs.unmount().unwrap();
    assert!(fsck::check(&*device, &mut |_| ()).unwrap().is_clean());
}

#[test]
fn reserved_space_is_there_when_all_else_is_full() {
    let device = formatted();
    let fs = mount(&device);
    let reserved = file(&fs, "reserved", b"");
    let length = 2 << 20;
    fs.allocate(reserved, 0, length, amphi_vfs::Allocate::Reserve { keep_size: false }, &Cred::ROOT).unwrap();
    let filler = file(&fs, "filler", b"");
    let mut at = 0;
    while fs.write(filler, at, &[1; 4096], WriteMode::default(), &Cred::ROOT).is_ok() {
        at += 4096;
    }
    for offset in (0..length).step_by(65_536) {
        let written = fs.write(reserved, offset, &[9; 65_536], WriteMode::default(), &Cred::ROOT);
        assert_eq!(written, Ok(65_536), "at {offset} of {length} reserved bytes");
    }
    fs.fsync(reserved, false).unwrap();
    fs.unmount().unwrap();
    assert!(fsck::check(&*device, &mut |_| ()).unwrap().is_clean());
}

/// A page that fails after some of its bytes were stored in the log costs its file that page, not the mount.
#[test]
fn a_power_cut_with_an_unreadable_page_in_the_log_leaves_a_file_system_that_mounts() {
    let device = Arc::new(Ssd::in_memory(&Profile::named("free").expect("built in"), 64 << 20));
    ByteFs::format(&*device, &FormatOptions::default()).unwrap();
    let fs = ByteFs::mount(Arc::clone(&device), options()).unwrap();
    let file = |text| {
        let created = fs.create(Ino::ROOT, name(text), FileType::Regular, 0o644, 0, &Cred::ROOT).unwrap();
        fs.write(created.attr.ino, 0, &[1; 8192], WriteMode::default(), &Cred::ROOT).unwrap();
        fs.fsync(created.attr.ino, false).unwrap();
        created.attr.ino
    };
    let whole = file("whole");
    let known = device.mapped_pages();
    let damaged = file("damaged");
    let mut pages = device.mapped_pages();
    pages.retain(|page| !known.contains(page));
    assert_eq!(pages.len(), 2, "its data went by block");
    fs.write(damaged, 100, &[2; 64], WriteMode::default(), &Cred::ROOT).unwrap();
    fs.fsync(damaged, false).unwrap();
    assert!(device.spoil(pages[0].0));
    device.power_cut(1);
    drop(fs);
    let device = Arc::into_inner(device).expect("nobody else has it").restart().expect("it powers up");
    let fs = ByteFs::mount(Arc::new(device), options()).expect("one bad page is no reason not to mount");
    let mut page = [0; 4096];
    assert!(matches!(fs.read(damaged, 0, &mut page, false), Err(Error::Io(_))));
    for (ino, at) in [(damaged, 4096), (whole, 0), (whole, 4096)] {
        assert_eq!(fs.read(ino, at, &mut page, false), Ok(4096));
        assert_eq!(page, [1; 4096]);
    }
    fs.write(damaged, 0, &[3; 4096], WriteMode::default(), &Cred::ROOT)
        .expect("a whole page needs none before it");
    fs.fsync(damaged, false).unwrap();
    let device = Arc::clone(fs.device());
    fs.unmount().unwrap();
    let fs = ByteFs::mount(device, options()).unwrap();
    assert_eq!(fs.read(damaged, 0, &mut page, false), Ok(4096));
    assert_eq!(page, [3; 4096]);
}
