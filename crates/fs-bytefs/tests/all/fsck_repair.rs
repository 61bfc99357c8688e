//! Repair: leaves a clean image, loses nothing that can be kept, changes nothing where nothing is wrong, and
//! survives a power loss at any point.
//!
//! `AMPHI_SEEDS=20000` runs more seeds, `AMPHI_SEED=n` replays one.

use std::collections::BTreeMap;
use std::sync::Arc;

use amphi_device::{BlockPort, Lpa, Structure};
use amphi_fs_bytefs::format::*;
use amphi_fs_bytefs::fsck::{self, FindingKind as F};
use amphi_fs_bytefs::{ByteFs, MountOptions};
use amphi_memory_device::Memory;
use amphi_ssd::{Profile, Ssd};
use amphi_vfs::{FileSystem, FileType, Ino, Name};
use zerocopy::{FromBytes, IntoBytes};

use crate::fsck_image::corrupt::{Random, corrupt};
use crate::fsck_image::usage::use_it;
use crate::fsck_image::*;

fn mount(device: &Arc<Memory>) -> ByteFs<Memory> {
    let options = MountOptions { write_back_interval_ns: 0, ..MountOptions::default() };
    ByteFs::mount(Arc::clone(device), options).expect("a repaired image can be mounted")
}

/// Paths of the tree with type and size.
fn tree(device: &Arc<Memory>) -> BTreeMap<String, (FileType, u64)> {
    let fs = mount(device);
    let mut found = BTreeMap::new();
    let mut dirs = vec![(String::new(), Ino::ROOT)];
    while let Some((path, dir)) = dirs.pop() {
        let mut here = Vec::new();
        fs.readdir(dir, 0, &mut |entry| {
            if !matches!(entry.name, b"." | b"..") {
                here.push((format!("{path}/{}", String::from_utf8_lossy(entry.name)), entry.ino));
            }
            true
        })
        .expect("directories can be listed");
        for (path, ino) in here {
            let attr = fs.getattr(ino).expect("what is listed is there");
            if attr.file_type == FileType::Directory {
                dirs.push((path.clone(), ino));
            }
            found.insert(path, (attr.file_type, attr.size));
        }
    }
    found
}

/// Breaks the sample, repairs it, checks that it is clean then, and returns the device.
#[track_caller]
fn repaired(corrupt: impl FnOnce(&mut Image)) -> Arc<Memory> {
    let mut image = Image::sample();
    corrupt(&mut image);
    let device = Arc::new(image.device());
    let outcome = fsck::repair(&*device, &mut |_| ()).expect("the device does not fail");
    assert!(!outcome.before.is_clean());
    assert!(outcome.after.is_clean(), "{:?}\nleft: {:?}", outcome.before.findings, outcome.after.findings);
    let again = fsck::repair(&*device, &mut |_| ()).expect("the device does not fail");
    assert!(again.before.is_clean(), "{:?}", again.before.findings);
    assert_eq!(again.bytes_written, 0);
    device
}

/// The sample's tree, with what differs: `None` for what is gone.
fn sample_but(changes: &[(&str, Option<(FileType, u64)>)]) -> BTreeMap<String, (FileType, u64)> {
    let mut tree = tree(&Arc::new(Image::sample().device()));
    for (path, change) in changes {
        match change {
            Some(change) => drop(tree.insert((*path).to_owned(), *change)),
            None => assert!(tree.remove(*path).is_some(), "{path} is in the sample"),
        }
    }
    tree
}

#[test]
fn a_clean_image_is_not_touched() {
    let image = Image::sample();
    let device = image.device();
    let outcome = fsck::repair(&device, &mut |_| ()).expect("the device does not fail");
    assert!(outcome.before.is_clean() && outcome.after.is_clean());
    assert_eq!(outcome.bytes_written, 0);
    assert!(device.contents() == image.bytes);
}

#[test]
fn what_only_contradicts_itself_is_set_right() {
    let device = repaired(|i| {
        i.set_inode_bit(0, false);
        i.set_inode_bit(BIG, false);
        i.set_orphan(100, FREE_INODE);
        i.edit_lower(FILE, |l| l.nlink = 7.into());
        i.edit_lower(DOCS, |l| l.nlink = 7.into());
        i.edit_lower(DEEP, |l| l.pages = 1000.into());
        i.edit_upper(SUB, |u| u.parent_or_rdev = 200.into());
        i.edit_lower(PIPE, |l| l.size = 9.into());
        i.edit_entry(SUB, "leaf", |h, _| h.file_type = 4);
        i.set_block_bit(4, false);
        let page = i.free_page();
        i.set_block_bit(page, true);
        i.bytes[SUPER_STATE_OFFSET] ^= 1;
        let slot = i.layout.journal as usize * PAGE + 3 * LINE;
        i.bytes[slot..slot + LINE].fill(9);
        let (mut sb, _) = Superblock::read_from_prefix(&i.bytes[..]).expect("a page is long enough");
        sb.options[..4].copy_from_slice(b"fast");
        sb.crc = sb.checksum().into();
        i.bytes[..SUPER_STATE_OFFSET].copy_from_slice(sb.as_bytes());
    });
    assert_eq!(tree(&device), sample_but(&[]));
}

#[test]
fn a_root_marked_free_is_marked_used() {
    let device = repaired(|i| i.set_inode_bit(ROOT_INO, false));
    assert_eq!(tree(&device), sample_but(&[]));
}

#[test]
fn a_file_without_a_name_comes_to_lost_and_found() {
    let device = repaired(|i| i.edit_entry(ROOT_INO, "big", |h, _| h.ino = 0.into()));
    let size = Image::sample().lower(BIG).size.get();
    let expected = sample_but(&[
        ("/big", None),
        ("/lost+found", Some((FileType::Directory, 64))),
        ("/lost+found/#4", Some((FileType::Regular, size))),
    ]);
    assert_eq!(tree(&device), expected);
}

#[test]
fn a_lost_root_leaves_everything_in_lost_and_found() {
    let device = repaired(|i| {
        let at = i.layout.inode_address(ROOT_INO) as usize;
        i.bytes[at] ^= 1;
    });
    let found = tree(&device);
    assert!(found.contains_key("/lost+found/#2/sub/leaf"), "{found:?}");
    assert!(found.contains_key("/lost+found/#3"), "{found:?}");
    let sizes = |tree: &BTreeMap<String, (FileType, u64)>| {
        let mut sizes: Vec<u64> =
            tree.values().filter(|(t, _)| *t == FileType::Regular).map(|(_, size)| *size).collect();
        sizes.sort_unstable();
        sizes
    };
    // The file with two names has one now.
    assert_eq!(sizes(&found), sizes(&sample_but(&[("/second-name", None)])));
}

#[test]
fn a_file_keeps_its_data_when_its_attributes_are_lost() {
    let device = repaired(|i| {
        let at = i.layout.inode_address(BIG) as usize;
        i.bytes[at..at + 8].fill(0xAA);
    });
    let pages = 2 * 299 + 1;
    assert_eq!(tree(&device), sample_but(&[("/big", Some((FileType::Regular, pages * PAGE as u64)))]));
}

#[test]
fn shared_pages_are_copied() {
    let mut image = Image::sample();
    let shared = image.upper(FILE).root[0].lba.get();
    image.page_mut(shared).fill(b'a');
    image.page_mut(shared + 1).fill(b'b');
    image.edit_upper(LEAF, |u| {
        u.count = 1.into();
        u.root[0] = extent(0, shared, 2);
    });
    image.edit_lower(LEAF, |l| {
        l.pages = 2.into();
        l.size = 8192.into();
    });
    let device = Arc::new(image.device());
    let outcome = fsck::repair(&*device, &mut |_| ()).expect("the device does not fail");
    assert!(outcome.after.is_clean(), "{:?}", outcome.after.findings);
    let fs = mount(&device);
    let look = |dir: Ino, name: &str| {
        let entry = fs.lookup(dir, Name::new(name.as_bytes()).expect("a name")).expect("it is there");
        let mut bytes = vec![0; 8192];
        if entry.attr.file_type == FileType::Regular {
            fs.read(entry.attr.ino, 0, &mut bytes, false).expect("it can be read");
        }
        (entry.attr.ino, bytes)
    };
    let docs = look(Ino::ROOT, "docs").0;
    let sub = look(docs, "sub").0;
    let expected = [vec![b'a'; PAGE], vec![b'b'; PAGE]].concat();
    assert_eq!(look(Ino::ROOT, "file").1, expected);
    assert_eq!(look(sub, "leaf").1, expected);
}

#[test]
fn a_damaged_entry_costs_no_others() {
    let device = repaired(|i| i.edit_entry(DOCS, "small-110", |h, _| h.lines = 0));
    let expected = sample_but(&[
        ("/docs/small-110", None),
        ("/lost+found", Some((FileType::Directory, 64))),
        ("/lost+found/#110", Some((FileType::Regular, 0))),
    ]);
    assert_eq!(tree(&device), expected);
}

#[test]
fn bad_names_become_good_ones() {
    let device = repaired(|i| i.edit_entry(ROOT_INO, "long", |_, rest| rest[1] = b'/'));
    let expected = sample_but(&[("/long", None), ("/l_ng", Some((FileType::Symlink, 100)))]);
    assert_eq!(tree(&device), expected);
}

#[test]
fn attributes_that_cannot_be_used_are_dropped() {
    let device = repaired(|i| {
        let page = i.upper(FILE).xattr.get();
        i.page_mut(page)[20] ^= 1;
        i.edit_lower(INLINE_LINK, |l| l.size = 1.into());
    });
    let fs = mount(&device);
    let attributes = |name: &[u8]| {
        let entry = fs.lookup(Ino::ROOT, Name::new(name).expect("a name")).expect("it is there");
        fs.listxattr(entry.attr.ino).expect("a list")
    };
    assert_eq!(attributes(b"file"), Vec::<Vec<u8>>::new());
    assert_eq!(attributes(b"link"), [b"trusted.x".to_vec()]);
}

#[test]
fn cycles_are_cut() {
    let device = repaired(|i| {
        i.edit_entry(ROOT_INO, "docs", |h, _| h.ino = 0.into());
        i.edit_entry(SUB, "leaf", |h, _| {
            h.ino = DOCS.into();
            h.file_type = 4;
        });
    });
    let found = tree(&device);
    assert!(found.contains_key("/lost+found/#2/sub"), "{found:?}");
    assert!(found.contains_key("/lost+found/#9"), "{found:?}");
}

#[test]
fn of_two_names_a_directory_keeps_the_one_it_knows() {
    // The superfluous name comes first, in the root; "sub" itself says that its parent is "docs".
    let device = repaired(|i| {
        i.edit_entry(ROOT_INO, "empty", |h, _| h.ino = SUB.into());
        i.edit_lower(12, |l| l.nlink = 0.into());
    });
    assert_eq!(tree(&device), sample_but(&[("/empty", None)]));
}

#[test]
fn directories_with_holes_keep_their_pages() {
    let device = repaired(|i| {
        i.edit_upper(DOCS, |u| {
            let lba = u.root[0].lba.get();
            u.count = 2.into();
            u.root[0] = extent(0, lba, 1);
            u.root[1] = extent(2, lba + 1, 1);
        });
        i.edit_lower(DOCS, |l| l.size = (l.size.get() + PAGE as u64).into());
    });
    let docs = |tree: BTreeMap<String, (FileType, u64)>| tree.into_keys().collect::<Vec<_>>();
    assert_eq!(docs(tree(&device)), docs(sample_but(&[])));
}

#[test]
fn directories_and_links_whose_pages_are_marked_as_reserved_keep_them() {
    for ino in [DOCS, LONG_LINK] {
        let device = repaired(|i| i.edit_upper(ino, |u| u.root[0] = reserved(u.root[0])));
        // A directory's size is that of its pages then.
        let names = |tree: BTreeMap<String, (FileType, u64)>| tree.into_keys().collect::<Vec<_>>();
        assert_eq!(names(tree(&device)), names(sample_but(&[])));
    }
}

#[test]
fn unreadable_pages_are_left_alone() {
    let mut image = Image::sample();
    image.edit_lower(FILE, |l| l.nlink = 7.into());
    let device = image.device();
    device.spoil(image.layout.inode_table(0) + 3);
    let outcome = fsck::repair(&device, &mut |_| ()).expect("a media error is a finding");
    let kinds: Vec<_> = outcome.after.findings.iter().map(|f| &f.kind).collect();
    assert!(kinds.iter().any(|kind| matches!(kind, F::PageUnreadable { .. })), "{kinds:?}");
    assert!(!kinds.iter().any(|kind| matches!(kind, F::LinkCountWrong { .. })), "{kinds:?}");
}

#[test]
fn random_damage_is_repaired() {
    let sample = Image::sample();
    let (mut damaged, mut rounds) = (0, 0);
    for seed in seeds(1000) {
        let mut image = sample.clone();
        corrupt(&mut image, &mut Random(seed));
        let device = Arc::new(image.device());
        let outcome = fsck::repair(&*device, &mut |p| {
            if p.phase == "repairing" {
                rounds = rounds.max(p.done + 1);
            }
        })
        .expect("the device does not fail");
        let replay = format!("replay with AMPHI_SEED={seed}");
        assert!(
            outcome.after.is_clean(),
            "{:?}\nleft: {:?}\n{replay}",
            outcome.before.findings,
            outcome.after.findings
        );
        damaged += u64::from(!outcome.before.is_clean());
        let report = fsck::check(&*device, &mut |_| ()).expect("the device does not fail");
        assert!(report.is_clean(), "{:?}: {replay}", report.findings);
        let fs = mount(&device);
        use_it(&fs, &mut Random(seed), 40);
        fs.unmount().expect("a repaired image can be unmounted");
        let report = fsck::check(&*device, &mut |_| ()).expect("the device does not fail");
        assert!(report.is_clean(), "after use: {:?}: {replay}", report.findings);
    }
    println!("{damaged} images repaired in at most {rounds} rounds");
}

#[test]
fn a_power_loss_during_repair_is_harmless() {
    for seed in seeds(60) {
        let mut image = Image::sample();
        corrupt(&mut image, &mut Random(seed));
        let before = image.findings();
        for changes in 0.. {
            let device = image.device();
            device.lose_power_after(changes);
            let outcome = fsck::repair(&device, &mut |_| ());
            device.power_on();
            if outcome.is_ok() {
                break;
            }
            let replay = format!("power lost after {changes} changes: replay with AMPHI_SEED={seed}");
            let report = fsck::check(&device, &mut |_| ()).expect("the device does not fail");
            let found: Vec<F> = report.findings.into_iter().map(|f| f.kind).collect();
            assert_eq!(found, before, "{replay}");
        }
    }
}

/// The emulated SSD with an image on it.
fn on_ssd(image: &Image) -> Ssd {
    let mut profile = Profile::named("free").expect("the profile is built in");
    profile.log.region_bytes = 256 << 10;
    profile.flash.pages_per_block = 16;
    let ssd = Ssd::in_memory(&profile, PAGES * PAGE as u64);
    ssd.write(Lpa(0), &image.bytes, Structure::Other).expect("the image fits");
    ssd.flush().expect("the device does not fail");
    ssd
}

#[test]
fn a_power_loss_of_the_ssd_during_repair_is_harmless() {
    let mut cut = 0;
    for seed in seeds(40) {
        let mut image = Image::sample();
        let random = &mut Random(seed);
        corrupt(&mut image, random);
        let before = image.findings();
        let mut ssd = on_ssd(&image);
        for _ in 0..4 {
            ssd.cut_after_steps(random.next() % 40, random.next());
            let outcome = fsck::repair(&ssd, &mut |_| ());
            cut += u64::from(outcome.is_err());
            ssd = ssd.restart().expect("it powers up");
            let report = fsck::check(&ssd, &mut |_| ()).expect("power is back");
            let found: Vec<F> = report.findings.into_iter().map(|f| f.kind).collect();
            assert!(found.is_empty() || found == before, "{found:?}, replay with AMPHI_SEED={seed}");
        }
        let outcome = fsck::repair(&ssd, &mut |_| ()).expect("power stays");
        assert!(outcome.after.is_clean(), "{:?}, replay with AMPHI_SEED={seed}", outcome.after.findings);
    }
    println!("the power went {cut} times");
    assert!(cut > 0 || std::env::var("AMPHI_SEED").is_ok());
}
