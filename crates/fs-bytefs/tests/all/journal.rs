//! Data journaling (BY-16): the power cut after every step of one write-back, and after every step of the
//! recovery that follows, leaves the file as it was or as it should be, never a part; and what travels for
//! it.

use std::sync::Arc;

use amphi_fs_bytefs::{ByteFs, DataMode, FormatOptions, MountError, MountOptions, fsck};
use amphi_ssd::{Profile, Ssd};
use amphi_vfs::{Allocate, Cred, Error, FileSystem, FileType, Ino, Name, SetAttr, WriteMode};

const PAGE: usize = 4096;
/// Pages of the file before.
const PAGES: usize = 24;

fn device() -> Ssd {
    let mut profile = Profile::named("free").expect("the profile is built in");
    profile.log.region_bytes = 128 << 10;
    profile.log.txlog_bytes = 8 << 10;
    profile.flash.pages_per_block = 16;
    Ssd::in_memory(&profile, 16 << 20)
}

fn options() -> MountOptions {
    MountOptions { data: DataMode::Journal, write_back_interval_ns: 0, ..MountOptions::default() }
}

fn mount(device: Ssd) -> ByteFs<Ssd> {
    ByteFs::mount(Arc::new(device), options()).expect("it can be mounted")
}

fn take_device(fs: ByteFs<Ssd>) -> Ssd {
    let device = Arc::clone(fs.device());
    drop(fs);
    Arc::into_inner(device).expect("the file system was the device's only other user")
}

/// A file system with one synced file of `PAGES` pages, all `a`.
fn prepared() -> (ByteFs<Ssd>, Ino) {
    let device = device();
    let format = FormatOptions { inodes: Some(512), ..FormatOptions::default() };
    ByteFs::format(&device, &format).expect("it can be formatted");
    let fs = mount(device);
    let name = Name::new(b"file").expect("a plain name");
    let entry = fs.create(Ino::ROOT, name, FileType::Regular, 0o644, 0, &Cred::ROOT);
    let ino = entry.expect("it can be created").attr.ino;
    write(&fs, ino, 0, &[b'a'; PAGES * PAGE]);
    fs.fsync(ino, false).expect("it can be synced");
    (fs, ino)
}

fn write(fs: &ByteFs<Ssd>, ino: Ino, offset: usize, data: &[u8]) {
    let written = fs.write(ino, offset as u64, data, WriteMode::default(), &Cred::ROOT);
    assert_eq!(written, Ok(data.len()));
}

/// Some of everything: pages by block, lines by bytes, new pages at the end.
fn change(fs: &ByteFs<Ssd>, ino: Ino) {
    write(fs, ino, PAGE + 100, &[b'b'; 9 * PAGE]);
    write(fs, ino, 15 * PAGE + 1000, &[b'c'; 200]);
    write(fs, ino, 20 * PAGE, &[b'd'; 6 * PAGE + 17]);
}

fn contents(fs: &ByteFs<Ssd>, ino: Ino) -> Vec<u8> {
    let size = fs.getattr(ino).expect("the file is there").size;
    let mut bytes = vec![0; size as usize];
    assert_eq!(fs.read(ino, 0, &mut bytes, false), Ok(bytes.len()));
    bytes
}

fn assert_sound(device: &Ssd, when: &str) {
    let report = fsck::check(device, &mut |_| {}).expect("it can be checked");
    assert!(report.is_clean(), "{when}: {:#?}", report.findings);
}

#[test]
fn a_cut_at_every_step_of_a_write_back_leaves_all_or_nothing() {
    let (fs, ino) = prepared();
    let before = contents(&fs, ino);
    change(&fs, ino);
    let after = contents(&fs, ino);
    drop(fs);
    let (mut old, mut new) = (0, 0);
    for step in 0.. {
        let (fs, ino) = prepared();
        change(&fs, ino);
        fs.device().cut_after_steps(step, step);
        let synced = fs.fsync(ino, false).is_ok() && fs.device().has_power();
        if !synced {
            assert!(matches!(fs.fsync(ino, false), Ok(()) | Err(Error::Io(_) | Error::ReadOnly)));
        } else {
            fs.device().power_cut(step);
        }
        let fs = mount(take_device(fs).restart().expect("the device powers up"));
        let found = contents(&fs, ino);
        assert!(found == before || found == after, "cut after step {step}: a part of what was written");
        assert!(!synced || found == after, "cut after step {step}: what was synced is there");
        (old, new) = (old + u32::from(found == before), new + u32::from(found == after && !synced));
        assert_sound(fs.device(), &format!("cut after step {step}"));
        if synced {
            break;
        }
    }
    println!("{old} cuts left the old contents, {new} the new ones before fsync returned");
    assert!(old > 3 && new > 3, "cuts fell before and after the commit: {old}, {new}");
}

#[test]
fn a_cut_at_every_step_of_a_replay_is_followed_by_another() {
    let (fs, ino) = prepared();
    change(&fs, ino);
    let after = contents(&fs, ino);
    drop(fs);
    let mut replays = 0;
    // The last steps of the write-back are those after the commit; which ones they are, the replay's effect
    // tells.
    for step in 0.. {
        let (fs, ino) = prepared();
        change(&fs, ino);
        fs.device().cut_after_steps(step, 1);
        if fs.fsync(ino, false).is_ok() && fs.device().has_power() {
            break;
        }
        let mut device = take_device(fs).restart().expect("the device powers up");
        for recovery_step in (0..).step_by(3) {
            device.cut_after_steps(recovery_step, recovery_step);
            let shared = Arc::new(device);
            let mounted = ByteFs::mount(Arc::clone(&shared), options());
            let done = mounted.is_ok() && shared.has_power();
            drop(mounted);
            device = Arc::into_inner(shared).expect("a mount that is gone holds no device");
            if done {
                device.power_cut(1);
            }
            device = device.restart().expect("the device powers up");
            if done {
                break;
            }
        }
        let fs = mount(device);
        let found = contents(&fs, ino);
        assert!(found == after || found == [b'a'; PAGES * PAGE], "cut after step {step}, then in recovery");
        replays += u32::from(found == after);
        assert_sound(fs.device(), &format!("cut after step {step}, then in recovery"));
    }
    assert!(replays > 3, "some cuts fell behind the commit");
}

#[test]
fn a_cut_off_file_is_as_it_was_when_it_was_cut() {
    let (fs, ino) = prepared();
    change(&fs, ino);
    let cut = SetAttr { size: Some(5 * PAGE as u64 + 7), ..SetAttr::default() };
    fs.setattr(ino, &cut, &Cred::ROOT).expect("it can be cut");
    let due = contents(&fs, ino);
    fs.device().power_cut(7);
    let fs = mount(take_device(fs).restart().expect("the device powers up"));
    assert_eq!(contents(&fs, ino), due, "what was written before the cut is durable with it");
    change(&fs, ino);
    fs.allocate(ino, 100, 3 * PAGE as u64, Allocate::PunchHole, &Cred::ROOT).expect("it can be punched");
    let due = contents(&fs, ino);
    fs.device().power_cut(8);
    let fs = mount(take_device(fs).restart().expect("the device powers up"));
    assert_eq!(contents(&fs, ino), due, "and with a hole that is punched, its zeroed ends included");
}

#[test]
fn what_is_longer_than_the_journal_goes_in_parts() {
    let device = device();
    let format = FormatOptions { inodes: Some(512), journal_pages: Some(12), ..FormatOptions::default() };
    ByteFs::format(&device, &format).expect("it can be formatted");
    let fs = mount(device);
    let name = Name::new(b"file").expect("a plain name");
    let entry = fs.create(Ino::ROOT, name, FileType::Regular, 0o644, 0, &Cred::ROOT);
    let ino = entry.expect("it can be created").attr.ino;
    for byte in *b"abc" {
        write(&fs, ino, 77, &[byte; 50 * PAGE]);
        write(&fs, ino, 77 + 10 * PAGE, &[byte; 20]);
    }
    fs.fsync(ino, false).expect("it can be synced");
    fs.device().power_cut(9);
    let fs = mount(take_device(fs).restart().expect("the device powers up"));
    assert_eq!(contents(&fs, ino)[77..], [b'c'; 50 * PAGE]);
}

#[test]
fn small_changes_need_no_journal_and_large_ones_are_written_twice() {
    let (fs, ino) = prepared();
    let pages = |fs: &ByteFs<Ssd>| fs.device().stats().block_write.bytes() / PAGE as u64;
    let before = pages(&fs);
    write(&fs, ino, 5000, &[b'x'; 300]);
    fs.fsync(ino, true).expect("it can be synced");
    assert_eq!(pages(&fs), before, "a few lines are stores of the transaction");
    write(&fs, ino, 8 * PAGE, &[b'y'; 4 * PAGE]);
    fs.fsync(ino, true).expect("it can be synced");
    assert_eq!(pages(&fs), before + 1 + 4 + 4, "a descriptor, the pages in the journal, the pages in place");
}

#[test]
fn a_file_system_without_a_journal_says_so() {
    let device = device();
    let format = FormatOptions { journal_pages: Some(0), ..FormatOptions::default() };
    ByteFs::format(&device, &format).expect("it can be formatted");
    match ByteFs::mount(Arc::new(device), options()) {
        Err(MountError::Unsuitable(why)) => assert!(why.contains("data=ordered"), "{why}"),
        other => panic!("it should have been refused: {:?}", other.err()),
    }
}
