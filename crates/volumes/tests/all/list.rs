//! Every file system of the list is made, recognised, mounted and checked by the same code.

use std::sync::Arc;

use amphi_device::{BlockPort, Lpa, PAGE_BYTES, Structure};
use amphi_ssd::{Firmware, OpenOptions, Profile, Ssd};
use amphi_volume::{FormatOptions, MountOptions, Needs, Volume};
use amphi_volumes::{Act, Kind};

const DEVICE_BYTES: u64 = 32 << 20;

/// A device that the file system can use.
pub fn device(kind: Kind) -> Arc<Ssd> {
    let mut profile = Profile::named("free").expect("a built-in profile");
    (profile.flash.channels, profile.flash.ways) = (1, 1);
    profile.firmware.kind = match kind.identity().needs {
        Needs::Blocks | Needs::PageView => Firmware::Log,
        Needs::MemoryArea => Firmware::Memory,
        Needs::Inside => Firmware::FileSystem,
    };
    profile.firmware.memory_bytes = 8 << 20;
    let options = OpenOptions { free: true, ..OpenOptions::default() };
    Arc::new(Ssd::try_in_memory(&profile, DEVICE_BYTES, &options).expect("a valid profile"))
}

/// Makes one on it.
pub fn make(kind: Kind, device: &Arc<Ssd>) {
    struct Make<'a>(&'a Arc<Ssd>);
    impl Act<Ssd> for Make<'_> {
        type Out = amphi_volume::Result<()>;
        fn on<V: Volume<Ssd>>(self) -> Self::Out {
            V::format(self.0, &FormatOptions { label: "list".to_owned(), ..FormatOptions::default() })
        }
    }
    kind.with(Make(device)).expect("the device can carry it");
}

struct Use<'a>(&'a Arc<Ssd>);

impl Act<Ssd> for Use<'_> {
    type Out = ();

    fn on<V: Volume<Ssd>>(self) {
        let title = V::IDENTITY.title;
        let about = V::probe(self.0).expect("it is there");
        assert_eq!((about.name, &about.label[..], about.mounts), (V::IDENTITY.name, "list", 0), "{title}");
        let fs = V::mount(self.0, &MountOptions::default()).expect("what was made mounts");
        assert!(fs.statfs().expect("it is mounted").blocks > 0, "{title}");
        assert_eq!(fs.about().mounts, 1, "{title}");
        fs.unmount().expect("an idle file system unmounts");
        let report = V::check(self.0, &mut |_| {}).expect("it can be checked");
        assert!(report.is_clean() && report.cleanly_unmounted, "{title}: {:?}", report.findings);
        assert_eq!((report.files, report.directories), (0, 1), "{title}");
        let repair = V::repair(self.0, &mut |_| {}).expect("it can be checked");
        assert!(!repair.helped(), "{title}: nothing was wrong");
    }
}

#[test]
fn each_is_made_recognised_mounted_and_checked() {
    for kind in Kind::ALL.iter().copied() {
        let device = device(kind);
        assert_eq!(Kind::on(&*device), None, "nothing was made yet");
        make(kind, &device);
        assert_eq!(Kind::on(&*device), Some(kind));
        kind.with(Use(&device));
    }
}

#[test]
fn a_crashed_one_is_mended_by_what_mounting_mends() {
    struct Crash<'a>(&'a Arc<Ssd>);
    impl Act<Ssd> for Crash<'_> {
        type Out = ();
        fn on<V: Volume<Ssd>>(self) {
            drop(V::mount(self.0, &MountOptions::default()).expect("what was made mounts"));
            assert!(!V::probe(self.0).expect("it is there").clean, "it was not unmounted");
            let after = V::repair(self.0, &mut |_| {}).expect("it can be checked").after;
            assert!(after.is_clean(), "{}: {:?}", V::IDENTITY.title, after.findings);
            V::mount(self.0, &MountOptions::default()).expect("it mounts").unmount().expect("and unmounts");
        }
    }
    for kind in Kind::ALL.iter().copied() {
        let device = device(kind);
        make(kind, &device);
        kind.with(Crash(&device));
    }
}

/// File data of a file system in a memory area may begin at the block side's page 0.
#[test]
fn what_looks_like_a_superblock_in_file_data_is_none() {
    let mut superblock = [0; PAGE_BYTES];
    let other = device(Kind::Ext4like);
    make(Kind::Ext4like, &other);
    other.read(Lpa(0), &mut superblock, Structure::Superblock).expect("the device works");
    let device = device(Kind::Romefs);
    make(Kind::Romefs, &device);
    device.write(Lpa(0), &superblock, Structure::Data).expect("the device works");
    assert_eq!(Kind::on(&*device), Some(Kind::Romefs));
}

#[test]
fn names_are_told_apart_and_found() {
    for kind in Kind::ALL.iter().copied() {
        assert_eq!(Kind::named(kind.name()), Some(kind));
    }
    assert_eq!(Kind::named("ext4"), None, "that is the kernel's");
}
