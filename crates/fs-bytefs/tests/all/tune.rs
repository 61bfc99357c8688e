//! Changing a file system's superblock: labels, UUIDs, default mount options, growing; what a crash leaves of
//! it; and discarding what is free.

use std::sync::Arc;

use amphi_device::Device;
use amphi_fs_bytefs::tune::{Changes, Grown, grow, tune};
use amphi_fs_bytefs::{ByteFs, DataMode, FormatOptions, Info, MountError, MountOptions, fsck, probe};
use amphi_memory_device::Memory;
use amphi_ssd::{Profile, Ssd};
use amphi_vfs::{Cred, Error, FileSystem, FileType, Ino, Name, WriteMode};

const PAGE: u64 = 4096;
/// Neither a multiple of a bitmap page nor of a group.
const SMALL: u64 = 1333;
const LARGE: u64 = 70_001;

fn options() -> MountOptions {
    MountOptions { write_back_interval_ns: 0, ..MountOptions::default() }
}

fn small(device: &Memory) {
    let format =
        FormatOptions { label: "old".into(), inodes: Some(512), pages: Some(SMALL), ..Default::default() };
    ByteFs::format(device, &format).expect("it can be formatted");
}

fn device() -> Memory {
    // Not zeros: what a file system has not written may be anything.
    Memory::new(vec![0xA5; (LARGE * PAGE) as usize])
}

fn assert_sound(device: &Memory, when: &str) -> Info {
    let report = fsck::check(device, &mut |_| {}).expect("it can be checked");
    assert!(report.is_clean(), "{when}: {:#?}", report.findings);
    probe(device).expect("it is a ByteFS")
}

/// Writes files until nothing fits any more; returns how many bytes fitted.
fn fill(fs: &ByteFs<Memory>, name: &str) -> u64 {
    let name = Name::new(name.as_bytes()).expect("a plain name");
    let entry = fs.create(Ino::ROOT, name, FileType::Regular, 0o644, 0, &Cred::ROOT);
    let ino = entry.expect("there is room for a file").attr.ino;
    let mut at = 0;
    loop {
        match fs.write(ino, at, &[7; 65_536], WriteMode::default(), &Cred::ROOT) {
            Ok(len) => at += len as u64,
            Err(error) => {
                assert_eq!(error, Error::NoSpace);
                fs.fsync(ino, false).expect("what was reserved can be written");
                return at;
            }
        }
    }
}

#[test]
fn labels_uuids_and_options_are_changed_and_the_rest_is_not() {
    let device = device();
    small(&device);
    let before = probe(&device).expect("it is a ByteFS");
    let label = "a label of exactly thirty-two by".to_owned();
    let changes = Changes { label: Some(label.clone()), ..Changes::default() };
    assert_eq!(tune(&device, &changes).expect("it can be tuned").label, label);
    let changes = Changes { uuid: Some([9; 16]), ..Changes::default() };
    tune(&device, &changes).expect("it can be tuned");
    let changes = Changes { options: Some("data=journal,threshold=3".into()), ..Changes::default() };
    tune(&device, &changes).expect("it can be tuned");
    let after = assert_sound(&device, "tuned");
    assert_eq!((after.label, after.uuid), (label, [9; 16]));
    assert_eq!(
        (after.bytes, after.inodes, after.created_ns),
        (before.bytes, before.inodes, before.created_ns)
    );
    let options = ByteFs::default_options(&device).expect("it is a ByteFS");
    assert_eq!((options.data, options.byte_threshold), (DataMode::Journal, 3));
    ByteFs::mount(Arc::new(device), options)
        .expect("it can be mounted as it asks")
        .unmount()
        .expect("and unmounted");
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let device = device();
    small(&device);
    let before = device.contents();
    let refused = [
        Changes { label: Some("x".repeat(33)), ..Changes::default() },
        Changes { options: Some("fast".into()), ..Changes::default() },
        Changes { options: Some(format!("cache=1G{}", ",".repeat(96))), ..Changes::default() },
    ];
    for changes in refused {
        let outcome = tune(&device, &changes);
        assert!(matches!(outcome, Err(MountError::Unsuitable(_) | MountError::Options(_))), "{changes:?}");
    }
    for pages in [SMALL - 1, LARGE + 1, u64::MAX] {
        assert!(matches!(grow(&device, Some(pages)), Err(MountError::Unsuitable(_))), "{pages} pages");
    }
    assert!(device.contents() == before);
    let nothing = Memory::new(vec![0; 1 << 20]);
    assert!(matches!(grow(&nothing, None), Err(MountError::Format(_))));
}

#[test]
fn a_grown_file_system_has_the_room_and_keeps_its_files() {
    let device = Arc::new(device());
    small(&device);
    let fs = ByteFs::mount(Arc::clone(&device), options()).expect("it can be mounted");
    let first = fill(&fs, "first");
    assert!(first < SMALL * PAGE);
    fs.unmount().expect("it can be unmounted");
    let grown = grow(&*device, None).expect("it can grow");
    assert_eq!(grown, Grown { before: SMALL * PAGE, after: LARGE * PAGE });
    let info = assert_sound(&device, "grown");
    assert_eq!((info.bytes, info.inodes), (LARGE * PAGE, 3 * 512), "two more allocation groups");
    let fs = ByteFs::mount(Arc::clone(&device), options()).expect("it can be mounted");
    for number in 0..1400 {
        let name = format!("file {number}");
        let name = Name::new(name.as_bytes()).expect("a plain name");
        let made = fs.create(Ino::ROOT, name, FileType::Regular, 0o644, 0, &Cred::ROOT);
        fs.forget(made.expect("there are inodes for it").attr.ino, 1);
    }
    let second = fill(&fs, "second");
    assert!(second > (LARGE - 4000) * PAGE, "{second} bytes fitted");
    fs.unmount().expect("it can be unmounted");
    assert_sound(&device, "full again");
}

#[test]
fn a_rest_that_is_too_short_for_an_allocation_group_is_left() {
    const GROUP: u64 = 32_768;
    let device = Memory::new(vec![0xA5; ((GROUP + 50) * PAGE) as usize]);
    small(&device);
    for wanted in [Some(GROUP + 20), None] {
        let grown = grow(&device, wanted).expect("it can grow");
        assert_eq!(grown.after, GROUP * PAGE);
    }
    assert_eq!(assert_sound(&device, "grown").bytes, GROUP * PAGE);
    for pages in [Some(GROUP + 20), None] {
        ByteFs::format(&device, &FormatOptions { pages, ..Default::default() }).expect("it can be formatted");
        assert_eq!(assert_sound(&device, "made anew").bytes, GROUP * PAGE);
    }
    let more = FormatOptions { pages: Some(GROUP + 51), ..Default::default() };
    assert!(matches!(ByteFs::format(&device, &more), Err(MountError::Unsuitable(_))));
}

#[test]
fn a_crash_at_any_change_leaves_the_old_size_or_the_new() {
    let mut sizes = [0, 0];
    for changes in 0.. {
        let device = device();
        // Three allocation groups, all but the first of them new.
        let format = FormatOptions { inodes: Some(512), pages: Some(20_000), ..Default::default() };
        ByteFs::format(&device, &format).expect("it can be formatted");
        device.lose_power_after(changes);
        let outcome = grow(&device, Some(LARGE));
        device.power_on();
        let info = assert_sound(&device, &format!("{changes} changes"));
        sizes[usize::from(info.bytes == LARGE * PAGE)] += 1;
        assert!(info.bytes == 20_000 * PAGE || info.bytes == LARGE * PAGE);
        if outcome.is_err() {
            grow(&device, Some(LARGE)).expect("what was interrupted can be done again");
            assert_eq!(assert_sound(&device, "again").bytes, LARGE * PAGE);
        }
        let fs = ByteFs::mount(Arc::new(device), options()).expect("it can be mounted");
        assert!(fs.statfs().expect("it is mounted").blocks_free > LARGE - 5000);
        if outcome.is_ok() {
            break;
        }
    }
    assert!(sizes[0] > 3 && sizes[1] > 0, "{sizes:?}");
}

#[test]
fn the_ssds_power_fails_while_a_label_is_changed() {
    for step in 0.. {
        let mut device = Ssd::in_memory(&Profile::named("free").expect("built in"), 16 << 20);
        let format = FormatOptions { label: "old".into(), ..FormatOptions::default() };
        ByteFs::format(&device, &format).expect("it can be formatted");
        device.cut_after_steps(step, step);
        let changes = Changes { label: Some("new".into()), uuid: Some([7; 16]), ..Changes::default() };
        let done = tune(&device, &changes).is_ok() && device.has_power();
        if device.has_power() {
            device.power_cut(step);
        }
        device = device.restart().expect("the device powers up");
        let fs = ByteFs::mount(Arc::new(device), options()).expect("it can be mounted");
        let info = fs.info();
        assert!(info.label == "old" && info.uuid != [7; 16] || info.label == "new" && info.uuid == [7; 16]);
        assert!(!done || info.label == "new");
        if done {
            break;
        }
    }
}

#[test]
fn what_is_free_is_discarded_and_what_is_not_stays() {
    let device = Arc::new(Ssd::in_memory(&Profile::named("free").expect("built in"), 64 << 20));
    ByteFs::format(&*device, &FormatOptions::default()).expect("it can be formatted");
    let fs = ByteFs::mount(Arc::clone(&device), options()).expect("it can be mounted");
    let file = |name: &str, byte: u8| {
        let name = Name::new(name.as_bytes()).expect("a plain name");
        let entry = fs.create(Ino::ROOT, name, FileType::Regular, 0o644, 0, &Cred::ROOT);
        let ino = entry.expect("there is room for a file").attr.ino;
        let written = fs.write(ino, 0, &vec![byte; 5 << 20], WriteMode::default(), &Cred::ROOT);
        assert_eq!(written, Ok(5 << 20));
        fs.fsync(ino, false).expect("it can be synced");
        ino
    };
    let (kept, gone) = (file("kept", 1), file("gone", 2));
    fs.forget(gone, 1);
    fs.unlink(Ino::ROOT, Name::new(b"gone").expect("a plain name")).expect("it can be removed");
    let free = fs.statfs().expect("it is mounted").blocks_free;
    let before = device.stats().pages_trimmed;
    assert_eq!(fs.discard_free(0..u64::MAX, 0), Ok(free * PAGE));
    assert!(device.stats().pages_trimmed - before >= 5 << 8, "at least what the removed file had");
    assert_eq!(fs.statfs().expect("it is mounted").blocks_free, free);
    assert_eq!(fs.discard_free(0..u64::MAX, device.capacity_pages() * PAGE), Ok(0), "no run is that long");
    let parts: u64 = [0..8 << 20, 8 << 20..u64::MAX]
        .map(|range| fs.discard_free(range, 0).expect("a range of the file system"))
        .iter()
        .sum();
    assert_eq!(parts, free * PAGE, "two halves are the whole");
    for nothing in [PAGE..PAGE, device.capacity_pages() * PAGE..u64::MAX] {
        assert!(matches!(fs.discard_free(nothing, 0), Err(Error::Invalid(_))));
    }
    fs.unmount().expect("it can be unmounted");
    let fs = ByteFs::mount(Arc::clone(&device), options()).expect("it can be mounted");
    let mut bytes = vec![0; 5 << 20];
    assert_eq!(fs.read(kept, 0, &mut bytes, false), Ok(bytes.len()));
    assert!(bytes.iter().all(|&byte| byte == 1));
    fs.unmount().expect("it can be unmounted");
    let report = fsck::check(&*device, &mut |_| {}).expect("it can be checked");
    assert!(report.is_clean(), "{:#?}", report.findings);
}
