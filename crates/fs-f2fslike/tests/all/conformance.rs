//! It keeps what `vfs::FileSystem` promises, and answers random operations as the model does: with room, with
//! little in memory and garbage to collect, across remounts, and with several tasks.

use std::sync::Arc;

use amphi_conformance::{check_all, check_read_only, check_unreadable_ahead};
use amphi_fs_f2fslike::F2fsLike;
use amphi_memory_device::Memory;
use amphi_rt::Sim;
use amphi_vfs::{Cred, FileSystem, FileType, Ino, Name, WriteMode};
use amphi_volume::{FormatOptions, MountOptions, Volume};

use crate::small::{check, cramped, crash, make, mount, remount, roomy};

#[test]
fn keeps_the_promises() {
    check_all(roomy);
    check_read_only(roomy, |fs| remount(fs, true));
    Sim::new(1).run(|| check_all(|| make(64 << 20, 16)));
}

#[test]
fn a_page_read_ahead_may_be_unreadable() {
    let memory = Arc::new(Memory::new(vec![0; 32 << 20]));
    <F2fsLike<Memory> as Volume<Memory>>::format(&memory, &FormatOptions::default()).expect("it fits");
    let mount = |memory: &Arc<Memory>| -> F2fsLike<Memory> {
        Volume::mount(memory, &MountOptions::default()).expect("it can be mounted")
    };
    check_unreadable_ahead(mount(&memory), |fs, bytes| {
        fs.unmount().expect("memory does not fail");
        memory.spoil_page_of(bytes);
        mount(&memory)
    });
}

amphi_conformance::random_tests!(seeds: 40, roomy, cramped, |fs| remount(fs, false), crash);

amphi_conformance::one_tree_tests!("amphi-fs-f2fslike", 0..40, |_| cramped());

/// Files that were synced are there after a crash, in any mount.
#[test]
fn what_was_synced_alone_is_there_after_a_crash() {
    let fs = make(24 << 20, 100);
    let make = |name: &[u8]| {
        let name = Name::new(name).expect("a valid name");
        fs.create(Ino::ROOT, name, FileType::Regular, 0o644, 0, &Cred::ROOT).expect("there is room").attr.ino
    };
    make(b"lost");
    for number in 0..300_u32 {
        let ino = make(format!("file {number}").as_bytes());
        fs.write(ino, 0, &number.to_le_bytes(), WriteMode::default(), &Cred::ROOT).expect("there is room");
        fs.write(ino, 5 << 20, &number.to_le_bytes(), WriteMode::default(), &Cred::ROOT)
            .expect("there is room");
        if number == 0 {
            fs.sync().expect("memory does not fail");
            make(b"later");
        }
        fs.fsync(ino, false).expect("memory does not fail");
    }
    let ssd = Arc::clone(fs.device());
    drop(fs);
    check(&ssd);
    for read_only in [true, false, false] {
        let fs = mount(&ssd, 100, read_only);
        for number in 0..300_u32 {
            let name = format!("file {number}");
            let found = fs.lookup(Ino::ROOT, Name::new(name.as_bytes()).expect("a valid name"));
            let mut bytes = [0; 4];
            let ino = found.expect("it was synced").attr.ino;
            for at in [0, 5 << 20] {
                assert_eq!(fs.read(ino, at, &mut bytes, false), Ok(4));
                assert_eq!(bytes, number.to_le_bytes(), "of {name} at {at}");
            }
        }
    }
    check(&ssd);
}
