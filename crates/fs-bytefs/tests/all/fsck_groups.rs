//! A file system of several allocation groups: what lies in a later one is found there, checked, repaired,
//! and used.

use std::sync::Arc;

use amphi_fs_bytefs::format::*;
use amphi_fs_bytefs::fsck::{self, FindingKind as F};
use amphi_fs_bytefs::{ByteFs, MountOptions};
use amphi_memory_device::Memory;
use amphi_vfs::{Cred, FileSystem, FileType, Ino, Name, WriteMode};

use crate::fsck_image::*;

/// Pages of a whole group and a short one.
const TWO: u64 = AG_PAGES + 700;
/// Inodes of each.
const EACH: u32 = 512;
/// An inode of the second group, with a page there.
const LATER: u32 = EACH + 88;

/// A root with one file.
fn image() -> Image {
    let mut image = Image::empty_of(TWO, 2 * EACH);
    assert_eq!((image.layout.ags(), image.layout.ag_inodes), (2, EACH));
    image.put_dir(ROOT_INO, ROOT_INO, 2);
    let page = image.layout.ag_data(1) as u32;
    image.put_file(LATER, 1, 100, 0, &[extent(0, page, 1)], 1);
    image.set_block_bit(page, true);
    image.name(ROOT_INO, "later", LATER, mode::REGULAR);
    image.write_dirs();
    image
}

/// Repairs an image and reads the file in it.
#[track_caller]
fn repair(image: &Image) -> Arc<Memory> {
    let device = Arc::new(image.device());
    fsck::repair(&*device, &mut |_| ()).expect("the device does not fail");
    let report = fsck::check(&*device, &mut |_| ()).expect("the device does not fail");
    assert!(report.is_clean() && report.files == 1, "{report:#?}");
    device
}

fn mount(device: &Arc<Memory>) -> ByteFs<Memory> {
    let options = MountOptions { write_back_interval_ns: 0, ..MountOptions::default() };
    ByteFs::mount(Arc::clone(device), options).expect("it can be mounted")
}

#[test]
fn a_sound_one_is_clean_and_can_be_used() {
    let image = image();
    assert_eq!(image.findings(), []);
    let device = Arc::new(image.device());
    let fs = mount(&device);
    let later = fs.lookup(Ino::ROOT, Name::new(b"later").unwrap()).expect("it is there").attr;
    assert_eq!((later.ino, later.size), (Ino(u64::from(LATER)), 100));
    assert_eq!(fs.statfs().unwrap().blocks, TWO - image.layout.metadata_pages());
    for number in 0..900 {
        let name = format!("file {number}");
        let name = Name::new(name.as_bytes()).unwrap();
        let made = fs.create(Ino::ROOT, name, FileType::Regular, 0o644, 0, &Cred::ROOT);
        let ino = made.expect("both groups have inodes").attr.ino;
        fs.write(ino, 0, &[number as u8; 5000], WriteMode::default(), &Cred::ROOT).expect("it has room");
        fs.forget(ino, 1);
    }
    fs.unmount().expect("it can be unmounted");
    let report = fsck::check(&*device, &mut |_| ()).expect("the device does not fail");
    assert!(report.is_clean() && report.files == 901, "{report:#?}");
}

#[test]
fn bits_of_a_later_group_are_compared() {
    let sound = image();
    let (header, data) = (sound.layout.block_bitmap(1) as u32, sound.layout.ag_data(1) as u32);
    type Break = Box<dyn Fn(&mut Image)>;
    let cases: [(Break, F); 5] = [
        (Box::new(move |i| i.set_block_bit(header, false)), F::BlocksMarkedFree { page: header, pages: 1 }),
        (
            Box::new(move |i| i.set_block_bit(data - 1, false)),
            F::BlocksMarkedFree { page: data - 1, pages: 1 },
        ),
        (Box::new(move |i| i.set_block_bit(data, false)), F::BlocksMarkedFree { page: data, pages: 1 }),
        (Box::new(move |i| i.set_block_bit(data + 9, true)), F::BlocksLeaked { page: data + 9, pages: 1 }),
        (Box::new(|i| i.set_inode_bit(LATER, false)), F::InodeMarkedFree { ino: LATER }),
    ];
    for (breaks, finding) in cases {
        let mut image = sound.clone();
        breaks(&mut image);
        assert_eq!(image.findings(), [finding]);
        repair(&image);
    }
}

#[test]
fn metadata_between_groups_belongs_to_no_file() {
    let sound = image();
    let header = sound.layout.block_bitmap(1) as u32;
    // The header itself, a run that reaches into it, and the last of its pages.
    for (page, pages) in [(header, 1), (header - 1, 2), (sound.layout.ag_data(1) as u32 - 1, 2)] {
        let mut image = sound.clone();
        image.edit_upper(LATER, |upper| upper.root[0] = extent(0, page, pages));
        image.edit_lower(LATER, |lower| lower.pages = pages.into());
        let findings = image.findings();
        let refused = |f: &F| matches!(f, F::ExtentOutOfRange { ino: LATER, .. });
        assert!(findings.iter().any(refused), "{page}: {findings:?}");
        let fs = mount(&Arc::new(image.device()));
        let name = Name::new(b"later").unwrap();
        assert!(fs.lookup(Ino::ROOT, name).is_err(), "it is not read");
        drop(fs);
        repair(&image);
    }
}

#[test]
fn an_image_whose_later_bitmap_frees_metadata_is_not_mounted() {
    let mut image = image();
    image.set_block_bit(image.layout.inode_table(1) as u32, false);
    let mounted = ByteFs::mount(Arc::new(image.device()), MountOptions::default());
    let error = mounted.err().expect("it is damaged");
    assert!(error.to_string().contains("metadata"), "{error}");
}

#[test]
fn unreadable_bitmaps_of_a_later_group_are_findings() {
    let image = image();
    for (page, structure) in [
        (image.layout.inode_bitmap(1), "the inode bitmap"),
        (image.layout.block_bitmap(1), "the block bitmap"),
        (image.layout.inode_page(LATER).0, "inodes"),
    ] {
        let device = image.device();
        device.spoil(page);
        let report = fsck::check(&device, &mut |_| ()).expect("a media error is a finding");
        let found = |f: &fsck::Finding| matches!(&f.kind, F::PageUnreadable { page: at, structure: what, .. } if u64::from(*at) == page && *what == structure);
        assert!(report.findings.iter().any(found), "{report:#?}");
    }
}
