//! The exported file as programs see it: any offset, direct or not, what it refuses, and what reaches the
//! device when.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "drives a real mount in real time")]

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use amphi_device::{BlockPort, Device, DurabilityContract, Lpa, PAGE_BYTES, Result, Structure};
use amphi_front_export::{FILE_NAME, Recorded, export};
use amphi_front_fuse::{MountOptions, Session};
use amphi_ssd::{Profile, Ssd};
use rustix::fs::{FallocateFlags, OFlags, fallocate};

const SIZE: u64 = 8 << 20;

/// An SSD that counts its commands.
struct Counting {
    ssd: Ssd,
    writes: AtomicU64,
    flushes: AtomicU64,
    pages_trimmed: AtomicU64,
}

impl Device for Counting {
    fn capacity_pages(&self) -> u64 {
        self.ssd.capacity_pages()
    }

    fn contract(&self) -> DurabilityContract {
        self.ssd.contract()
    }
}

impl BlockPort for Counting {
    type Ticket<'a> = <Ssd as BlockPort>::Ticket<'a>;

    fn submit_read<'a>(&'a self, at: Lpa, into: &'a mut [u8], tag: Structure) -> Result<Self::Ticket<'a>> {
        self.ssd.submit_read(at, into, tag)
    }

    fn submit_write<'a>(&'a self, at: Lpa, bufs: &'a [&'a [u8]], tag: Structure) -> Result<Self::Ticket<'a>> {
        self.writes.fetch_add(1, Ordering::SeqCst);
        self.ssd.submit_write(at, bufs, tag)
    }

    fn flush(&self) -> Result<()> {
        self.flushes.fetch_add(1, Ordering::SeqCst);
        self.ssd.flush()
    }

    fn trim(&self, at: Lpa, pages: u64) -> Result<()> {
        self.pages_trimmed.fetch_add(pages, Ordering::SeqCst);
        self.ssd.trim(at, pages)
    }
}

struct Exported {
    session: Option<Session>,
    directory: tempfile::TempDir,
    port: Arc<Counting>,
}

impl Exported {
    /// An exported SSD of [`SIZE`] bytes; nothing where mounting is impossible.
    fn new() -> Option<Self> {
        if let Err(error) = OpenOptions::new().read(true).write(true).open("/dev/fuse") {
            println!("SKIPPED: /dev/fuse cannot be used here ({error})");
            return None;
        }
        let profile = Profile::named("free").expect("a built-in profile");
        let port = Arc::new(Counting {
            ssd: Ssd::in_memory(&profile, SIZE),
            writes: AtomicU64::new(0),
            flushes: AtomicU64::new(0),
            pages_trimmed: AtomicU64::new(0),
        });
        let directory = tempfile::tempdir().expect("a directory");
        let session =
            export(Arc::clone(&port), directory.path(), &MountOptions::default()).expect("an export");
        Some(Self { session: Some(session), directory, port })
    }

    fn open(&self, flags: OFlags) -> File {
        let path = self.directory.path().join(FILE_NAME);
        let flags = flags.bits() as i32;
        OpenOptions::new().read(true).write(true).custom_flags(flags).open(path).expect("the file")
    }

    /// What the device itself has.
    fn on_device(&self, at: u64, len: usize) -> Vec<u8> {
        let mut pages = vec![0; len.next_multiple_of(PAGE_BYTES)];
        self.port.ssd.read(Lpa::of_byte(at), &mut pages, Structure::Other).expect("a read");
        pages.truncate(len);
        pages
    }
}

impl Drop for Exported {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            session.detach().expect("the export can be taken away");
            session.wait().expect("a regular end");
        }
    }
}

#[test]
fn there_is_one_file_and_it_is_the_device() {
    let Some(exported) = Exported::new() else { return };
    let names: Vec<_> = std::fs::read_dir(exported.directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, [FILE_NAME]);
    let file = exported.open(OFlags::empty());
    assert_eq!(file.metadata().unwrap().len(), SIZE);
    let large: Vec<u8> = (0..SIZE / 2).map(|index| (index % 251) as u8).collect();
    file.write_all_at(&large, PAGE_BYTES as u64).unwrap();
    assert!(
        exported.on_device(PAGE_BYTES as u64, large.len()) == large,
        "a write that returned is on the device"
    );
    let (writes, pages) = (exported.port.writes.load(Ordering::SeqCst), SIZE / 2 / PAGE_BYTES as u64);
    assert!(writes <= pages / 100, "{pages} pages went in {writes} commands");
    // And what the device has is in the file, however it came there.
    exported.port.ssd.write(Lpa(1), &[7; PAGE_BYTES], Structure::Other).unwrap();
    let mut page = [0; PAGE_BYTES];
    file.read_exact_at(&mut page, PAGE_BYTES as u64).unwrap();
    assert_eq!(page, [7; PAGE_BYTES]);
}

#[test]
fn bytes_at_odd_places_leave_their_neighbours() {
    let Some(exported) = Exported::new() else { return };
    let file = exported.open(OFlags::empty());
    file.write_all_at(&[1; 3 * PAGE_BYTES], 0).unwrap();
    file.write_all_at(&[2; PAGE_BYTES], 100).unwrap();
    let mut expected = vec![1; 3 * PAGE_BYTES];
    expected[100..100 + PAGE_BYTES].fill(2);
    assert!(exported.on_device(0, 3 * PAGE_BYTES) == expected);
    let mut few = [0; 3];
    file.read_exact_at(&mut few, 99).unwrap();
    assert_eq!(few, [1, 2, 2]);
}

#[test]
fn each_way_to_ask_for_durability_flushes_the_device() {
    let Some(exported) = Exported::new() else { return };
    let flushes = || exported.port.flushes.load(Ordering::SeqCst);
    let file = exported.open(OFlags::empty());
    file.write_all_at(&[1; 512], 0).unwrap();
    assert_eq!(flushes(), 0);
    file.sync_all().unwrap();
    assert_eq!(flushes(), 1);
    file.sync_data().unwrap();
    assert_eq!(flushes(), 2);
    for flags in [OFlags::SYNC, OFlags::DSYNC] {
        let before = flushes();
        exported.open(flags).write_all_at(&[2; 512], 0).unwrap();
        assert!(flushes() > before, "{flags:?}");
    }
}

#[test]
fn a_punched_hole_is_trimmed_and_reads_as_zeros() {
    let Some(exported) = Exported::new() else { return };
    let file = exported.open(OFlags::empty());
    let page = PAGE_BYTES as u64;
    for mode in [FallocateFlags::PUNCH_HOLE, FallocateFlags::ZERO_RANGE] {
        file.write_all_at(&[1; 8 * PAGE_BYTES], 0).unwrap();
        let before = exported.port.pages_trimmed.load(Ordering::SeqCst);
        fallocate(&file, mode | FallocateFlags::KEEP_SIZE, 10, 5 * page).unwrap();
        assert_eq!(exported.port.pages_trimmed.load(Ordering::SeqCst) - before, 4, "{mode:?}");
        let mut expected = vec![1; 8 * PAGE_BYTES];
        expected[10..10 + 5 * PAGE_BYTES].fill(0);
        assert!(exported.on_device(0, 8 * PAGE_BYTES) == expected, "{mode:?}");
    }
}

#[test]
fn a_disk_keeps_its_size() {
    let Some(exported) = Exported::new() else { return };
    let mut file = exported.open(OFlags::empty());
    for size in [0, SIZE - 1, SIZE + 1] {
        assert_eq!(file.set_len(size).unwrap_err().kind(), ErrorKind::PermissionDenied, "{size}");
    }
    file.set_len(SIZE).unwrap();
    assert_eq!(file.write_at(b"x", SIZE).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(fallocate(&file, FallocateFlags::empty(), 0, SIZE + 1), Err(rustix::io::Errno::NOSPC));
    assert_eq!(file.read_at(&mut [0; 8], SIZE).unwrap(), 0);
    assert_eq!(file.seek(SeekFrom::End(0)).unwrap(), SIZE);
    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(5)), Ok(5));
    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(5)), Ok(SIZE));
    assert!(File::create(exported.directory.path().join("other")).is_err());
    assert!(std::fs::remove_file(exported.directory.path().join(FILE_NAME)).is_err());
}

#[test]
fn direct_io_reads_and_writes() {
    let Some(exported) = Exported::new() else { return };
    let file = exported.open(OFlags::DIRECT);
    let data = vec![9_u8; 64 * PAGE_BYTES];
    file.write_all_at(&data, 8192).unwrap();
    let mut back = vec![0; data.len()];
    file.read_exact_at(&mut back, 8192).unwrap();
    assert!(back == data && exported.on_device(8192, data.len()) == data);
}

/// Its lines are what an analysis of the kernel's traffic goes by.
#[test]
fn a_record_has_a_line_for_each_request() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("record");
    let record = OpenOptions::new().append(true).create_new(true).open(&path).unwrap();
    let ssd = Arc::new(Ssd::in_memory(&Profile::named("free").unwrap(), SIZE));
    let port = Recorded::new(ssd, record);
    let two = vec![7; 2 * PAGE_BYTES];
    port.write(Lpa(5), &two, Structure::Journal).unwrap();
    port.flush().unwrap();
    port.trim(Lpa(9), 4).unwrap();
    let mut found = vec![0; 2 * PAGE_BYTES];
    port.read(Lpa(5), &mut found, Structure::Other).unwrap();
    assert_eq!(found, two, "the requests reach the device");
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<_> = text.lines().map(|line| line.split_once(' ').unwrap().1).collect();
    assert_eq!(lines, ["W 5 2 journal", "F 0 0 other", "T 9 4 other", "R 5 2 other"]);
}
