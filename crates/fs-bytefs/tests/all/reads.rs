//! Reading what is not in memory: beside writers, and beside what the device cannot read.

use std::sync::Arc;

use amphi_conformance::check_unreadable_ahead;
use amphi_fs_bytefs::{ByteFs, FormatOptions, MountOptions};
use amphi_memory_device::Memory;
use amphi_rt::{Sim, task, time};
use amphi_ssd::{Profile, Ssd};
use amphi_vfs::{Cred, FileSystem, FileType, Ino, Name, WriteMode};

const PAGE: usize = 4096;

fn options() -> MountOptions {
    MountOptions { write_back_interval_ns: 0, ..MountOptions::default() }
}

#[test]
fn a_page_read_ahead_may_be_unreadable() {
    let device = Arc::new(Memory::new(vec![0; 16 << 20]));
    ByteFs::format(&*device, &FormatOptions::default()).expect("it can be formatted");
    let fs = ByteFs::mount(device, options()).expect("it can be mounted");
    check_unreadable_ahead(fs, |fs, bytes| {
        let device = Arc::clone(fs.device());
        fs.unmount().expect("it can be unmounted");
        device.spoil_page_of(bytes);
        ByteFs::mount(device, options()).expect("it can be mounted")
    });
}

/// A file of 128 pages of ones of which nothing is in memory.
fn cold() -> (Arc<ByteFs<Ssd>>, Ino) {
    let profile = Profile::named("mssd-pcie3").expect("the profile is built in");
    let device = Arc::new(Ssd::in_memory(&profile, 64 << 20));
    ByteFs::format(&*device, &FormatOptions::default()).expect("it can be formatted");
    let fs = ByteFs::mount(Arc::clone(&device), options()).expect("it can be mounted");
    let name = Name::new(b"file").expect("a plain name");
    let made = fs.create(Ino::ROOT, name, FileType::Regular, 0o644, 0, &Cred::ROOT);
    let ino = made.expect("there is room for a file").attr.ino;
    fs.write(ino, 0, &[1; 128 * PAGE], WriteMode::default(), &Cred::ROOT).expect("there is room");
    fs.unmount().expect("it can be unmounted");
    (Arc::new(ByteFs::mount(device, options()).expect("it can be mounted")), ino)
}

/// Reads a page in a task of its own.
fn read_page(fs: &Arc<ByteFs<Ssd>>, ino: Ino, page: u64) -> task::JoinHandle<()> {
    let fs = Arc::clone(fs);
    task::spawn("reads", move || {
        let mut bytes = [0; PAGE];
        assert_eq!(fs.read(ino, page * PAGE as u64, &mut bytes, false), Ok(PAGE));
    })
}

#[test]
fn readers_of_a_file_do_not_wait_for_each_other() {
    Sim::new(7).run(|| {
        let (fs, ino) = cold();
        // The first reading of all also brings the inode.
        read_page(&fs, ino, 1).join();
        let took = |pages: &[u64]| {
            let begin = time::now_ns();
            let readers: Vec<_> = pages.iter().map(|page| read_page(&fs, ino, *page)).collect();
            readers.into_iter().for_each(task::JoinHandle::join);
            time::now_ns() - begin
        };
        let one = took(&[9]);
        let eight = took(&[20, 33, 46, 59, 72, 85, 98, 111]);
        assert!(eight < 2 * one, "one takes {one} ns, eight take {eight} ns");
    });
}

/// A page is on its way from the device when somebody writes it there: it is not kept as it was.
#[test]
fn a_page_that_changes_while_it_is_read_is_read_again() {
    Sim::new(6).run(|| {
        let (fs, ino) = cold();
        let direct = WriteMode { direct: true, ..WriteMode::default() };
        for step in 0..40 {
            let page = 1 + 3 * step;
            let reader = read_page(&fs, ino, page);
            time::sleep_ns(step * 2_000);
            let at = page * PAGE as u64;
            fs.write(ino, at, &[2; PAGE], direct, &Cred::ROOT).expect("it is written in place");
            reader.join();
            let mut now = [0; PAGE];
            assert_eq!(fs.read(ino, at, &mut now, false), Ok(PAGE));
            assert!(now == [2; PAGE], "{} ns after its reading began", step * 2_000);
        }
    });
}
