//! What is free in a file system is discarded, and what is not stays.

use std::sync::Arc;

use amphi_device::{Device, PAGE_BYTES};
use amphi_ssd::Ssd;
use amphi_vfs::{Cred, Error, FileType, Ino, Name, WriteMode};
use amphi_volume::{MountOptions, Volume};
use amphi_volumes::{Act, Kind};

use crate::list::{device, make};

const PAGE: u64 = PAGE_BYTES as u64;
const FILE_BYTES: usize = 3 << 20;

struct Discard<'a>(&'a Arc<Ssd>);

impl Act<Ssd> for Discard<'_> {
    type Out = ();

    fn on<V: Volume<Ssd>>(self) {
        let (device, title) = (self.0, V::IDENTITY.title);
        let fs = V::mount(device, &MountOptions::default()).expect("what was made mounts");
        let all = 0..device.capacity_pages() * PAGE;
        if V::IDENTITY.name == Kind::Toy.name() {
            assert!(matches!(fs.discard_free(all, 0), Err(Error::Unsupported(_))));
            return;
        }
        let file = |name: &str, byte: u8| {
            let name = Name::new(name.as_bytes()).expect("a plain name");
            let entry = fs.create(Ino::ROOT, name, FileType::Regular, 0o644, 0, &Cred::ROOT);
            let ino = entry.expect("there is room for a file").attr.ino;
            let written = fs.write(ino, 0, &vec![byte; FILE_BYTES], WriteMode::default(), &Cred::ROOT);
            assert_eq!(written, Ok(FILE_BYTES), "{title}");
            fs.fsync(ino, false).expect("it can be synced");
            ino
        };
        let (kept, gone) = (file("kept", 1), file("gone", 2));
        fs.sync().expect("it can be synced");
        let discard = |range, shortest| fs.discard_free(range, shortest).expect("a range of it");
        let before = discard(all.clone(), 0);
        fs.forget(gone, 1);
        fs.unlink(Ino::ROOT, Name::new(b"gone").expect("a plain name")).expect("it can be removed");
        fs.sync().expect("it can be synced");

        let free = fs.statfs().expect("it is mounted").blocks_free;
        let trimmed = device.stats().pages_trimmed;
        let after = discard(all.clone(), 0);
        assert_eq!((device.stats().pages_trimmed - trimmed) * PAGE, after, "{title}");
        // A segment that the removed file shared with another is not free.
        let least = (FILE_BYTES as u64).saturating_sub(2 * (2 << 20)).max(1 << 20);
        assert!(after >= before + least, "{title}: {after} bytes, {before} with the file");
        assert_eq!(fs.statfs().expect("it is mounted").blocks_free, free, "{title}");
        let middle = all.end / 2 / PAGE * PAGE;
        assert_eq!(discard(0..middle, 0) + discard(middle..u64::MAX, 0), after, "{title}: halves");
        assert_eq!(discard(all.clone(), all.end), 0, "{title}: no run is that long");
        for nothing in [PAGE..PAGE, all.end..u64::MAX] {
            assert!(matches!(fs.discard_free(nothing, 0), Err(Error::Invalid(_))), "{title}");
        }

        fs.forget(kept, 1);
        let again = file("again", 3);
        fs.forget(again, 1);
        fs.unmount().expect("it can be unmounted");
        let fs = V::mount(device, &MountOptions::default()).expect("it can be mounted");
        for (name, byte) in [("kept", 1), ("again", 3)] {
            let ino = fs.lookup(Ino::ROOT, Name::new(name.as_bytes()).expect("a plain name"));
            let mut bytes = vec![0; FILE_BYTES];
            let ino = ino.expect("it is there").attr.ino;
            assert_eq!(fs.read(ino, 0, &mut bytes, false), Ok(FILE_BYTES), "{title}");
            assert!(bytes.iter().all(|found| *found == byte), "{title}: {name}");
            fs.forget(ino, 1);
        }
        fs.unmount().expect("it can be unmounted");
        let report = V::check(device, &mut |_| {}).expect("it can be checked");
        assert!(report.is_clean(), "{title}: {:?}", report.findings);
    }
}

#[test]
fn what_is_free_is_discarded_and_what_is_not_stays() {
    for kind in Kind::ALL.iter().copied() {
        let device = device(kind);
        make(kind, &device);
        kind.with(Discard(&device));
    }
}
