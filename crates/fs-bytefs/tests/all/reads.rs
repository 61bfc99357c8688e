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

/// A page is on its way from the device when somebody writes it there: it is not kept as it was.
#[test]
fn a_page_that_changes_while_it_is_read_is_read_again() {
    Sim::new(6).run(|| {
        let profile = Profile::named("mssd-pcie3").expect("the profile is built in");
        let device = Arc::new(Ssd::in_memory(&profile, 64 << 20));
        ByteFs::format(&*device, &FormatOptions::default()).expect("it can be formatted");
        let fs = ByteFs::mount(Arc::clone(&device), options()).expect("it can be mounted");
        let name = Name::new(b"file").expect("a plain name");
        let made = fs.create(Ino::ROOT, name, FileType::Regular, 0o644, 0, &Cred::ROOT);
        let ino = made.expect("there is room for a file").attr.ino;
        fs.write(ino, 0, &[1; 128 * PAGE], WriteMode::default(), &Cred::ROOT).expect("there is room");
        fs.unmount().expect("it can be unmounted");
        let fs = Arc::new(ByteFs::mount(device, options()).expect("nothing of it is in memory now"));
        let direct = WriteMode { direct: true, ..WriteMode::default() };
        for step in 0..40 {
            let at = (1 + 3 * step) * PAGE as u64;
            let reader = task::spawn("reads", {
                let fs = Arc::clone(&fs);
                move || fs.read(ino, at, &mut [0; PAGE], false).expect("it can be read")
            });
            time::sleep_ns(step * 2_000);
            fs.write(ino, at, &[2; PAGE], direct, &Cred::ROOT).expect("it is written in place");
            reader.join();
            let mut now = [0; PAGE];
            assert_eq!(fs.read(ino, at, &mut now, false), Ok(PAGE));
            assert!(now == [2; PAGE], "{} ns after its reading began", step * 2_000);
        }
    });
}
