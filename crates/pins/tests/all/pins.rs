//! One file through both paths: what a pin shows, what it refuses, and what a crash leaves (TB-10).

use std::sync::Arc;

use amphi_device::{BaBuffer, BlockPort, Structure};
use amphi_fs_ext4like::fsck::Finding;
use amphi_fs_ext4like::{Ext4Like, FormatOptions, MountOptions};
use amphi_pins::{Pin, Pinned};
use amphi_rt::{Sim, task};
use amphi_ssd::{Firmware, Profile, Ssd};
use amphi_vfs::{
    Allocate, Capabilities, Cred, Error, FileSystem, FileType, Ino, Name, OpenFlags, RenameMode, SetAttr,
    WriteMode,
};

const P: u64 = 4096;
const ROOT: Cred = Cred::ROOT;

type Fs = Pinned<Ext4Like<Ssd>, Ssd>;

/// An SSD of 64 MB whose BA-buffer has 16 pages and 4 entries.
fn device() -> Arc<Ssd> {
    let mut profile = Profile::named("2b-ssd").expect("built in");
    profile.firmware.kind = Firmware::BaBuffer;
    profile.log.region_bytes = 64 << 10;
    profile.log.txlog_bytes = 4096;
    (profile.ba_buffer.bytes, profile.ba_buffer.entries) = (16 * P, 4);
    Arc::new(Ssd::in_memory(&profile, 64 << 20))
}

fn options() -> MountOptions {
    MountOptions { commit_interval_ns: 0, ..MountOptions::default() }
}

fn mount(device: &Arc<Ssd>) -> Fs {
    Pinned::mount(device, || Ext4Like::mount(Arc::clone(device), options())).expect("it can be mounted")
}

fn make() -> Fs {
    let device = device();
    Ext4Like::format(&*device, &FormatOptions::default()).expect("it can be made");
    mount(&device)
}

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).expect("a name")
}

fn write(fs: &Fs, ino: Ino, offset: u64, data: &[u8]) {
    assert_eq!(fs.write(ino, offset, data, WriteMode::default(), &ROOT), Ok(data.len()));
}

fn read(fs: &Fs, ino: Ino, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xEE; len];
    let got = fs.read(ino, offset, &mut bytes, false).expect("it can be read");
    bytes.truncate(got);
    bytes
}

/// A file whose page `n` holds `n + 1` everywhere.
fn file(fs: &Fs, text: &str, pages: u8) -> Ino {
    let ino = fs.create(Ino::ROOT, name(text), FileType::Regular, 0o600, 0, &ROOT).expect("made").attr.ino;
    for page in 0..pages {
        write(fs, ino, u64::from(page) * P, &[page + 1; P as usize]);
    }
    ino
}

fn pin(fs: &Fs, ino: Ino, from: u64, pages: u64) -> Pin {
    fs.pin(ino, from * P, pages * P, &ROOT).expect("it can be pinned")
}

/// Takes the power from the SSD and gives it back; the file system's memory is lost.
fn power_loss(fs: Fs, seed: u64) -> Fs {
    let device = Arc::clone(fs.device());
    device.power_cut(seed);
    drop(fs);
    let device = Arc::into_inner(device).expect("nobody else has it").restart().expect("powers up");
    mount(&Arc::new(device))
}

fn ino_of(fs: &Fs, text: &str) -> Ino {
    fs.lookup(Ino::ROOT, name(text)).expect("it is there").attr.ino
}

#[test]
fn both_paths_see_one_file() {
    let fs = make();
    let ino = file(&fs, "f", 8);
    let pin = pin(&fs, ino, 2, 3);
    // What was in the page cache is what the window shows.
    let mut loaded = vec![0; 10];
    fs.load(pin.id, P - 5, &mut loaded, &ROOT).unwrap();
    assert_eq!(loaded, [3, 3, 3, 3, 3, 4, 4, 4, 4, 4]);
    // By bytes, read by the file; and the other way.
    fs.store(pin.id, 2 * P - 2, b"byte", &ROOT).unwrap();
    fs.sync_pin(pin.id, &ROOT).unwrap();
    assert_eq!(read(&fs, ino, 4 * P - 3, 6), b"\x04byte\x05");
    write(&fs, ino, P + 4000, &[9; 200]);
    fs.load(pin.id, 0, &mut loaded, &ROOT).unwrap();
    assert_eq!(loaded, [9; 10]);
    assert_eq!(read(&fs, ino, P + 3998, 4), [2, 2, 9, 9]);
    assert_eq!(read(&fs, ino, 0, 100_000).len(), 8 * P as usize, "a read ends with the file");
    // The block side does not have the pages meanwhile, and has them again, as they are, afterwards.
    let at = pin.entries[0].at;
    let mut page = vec![0; P as usize];
    assert!(fs.device().read(at, &mut page, Structure::Data).is_err());
    let before = read(&fs, ino, 0, 8 * P as usize);
    fs.unpin(pin.id, &ROOT).unwrap();
    assert_eq!(read(&fs, ino, 0, 8 * P as usize), before);
    fs.device().read(at, &mut page, Structure::Data).unwrap();
    assert_eq!(page, before[2 * P as usize..3 * P as usize]);
    assert_eq!(fs.unpin(pin.id, &ROOT), Err(Error::NotFound));
}

#[test]
fn what_would_take_pinned_pages_away_is_refused_and_names_come_and_go() {
    let fs = make();
    let ino = file(&fs, "f", 8);
    let pin = pin(&fs, ino, 2, 2);
    let cut = |size| fs.setattr(ino, &SetAttr { size: Some(size), ..SetAttr::default() }, &ROOT);
    assert!(matches!(cut(3 * P), Err(Error::Busy(_))));
    assert!(matches!(cut(0), Err(Error::Busy(_))));
    assert_eq!(cut(4 * P).unwrap().size, 4 * P, "behind the pin it can be cut");
    for what in [Allocate::PunchHole, Allocate::Zero { keep_size: true }] {
        assert!(matches!(fs.allocate(ino, 3 * P, P, what, &ROOT), Err(Error::Busy(_))));
        assert_eq!(fs.allocate(ino, 0, P, what, &ROOT), Ok(()));
    }
    let truncate = OpenFlags { write: true, truncate: true, ..OpenFlags::default() };
    assert!(matches!(fs.open(ino, truncate), Err(Error::Busy(_))));
    assert!(matches!(fs.pin(ino, P, 2 * P, &ROOT), Err(Error::Busy(_))), "pins do not overlap");

    fs.rename(Ino::ROOT, name("f"), Ino::ROOT, name("g"), RenameMode::default()).unwrap();
    write(&fs, ino, 2 * P, b"renamed");
    assert_eq!(read(&fs, ino_of(&fs, "g"), 2 * P, 7), b"renamed");
    fs.forget(ino, 1);
    let free = fs.statfs().unwrap().blocks_free;
    fs.unlink(Ino::ROOT, name("g")).unwrap();
    fs.forget(ino, 1);
    fs.sync().unwrap();
    assert_eq!(fs.statfs().unwrap().blocks_free, free, "the pin keeps the file's blocks");
    let mut bytes = [0; 7];
    fs.load(pin.id, 0, &mut bytes, &ROOT).unwrap();
    assert_eq!(&bytes, b"renamed");
    fs.unpin(pin.id, &ROOT).unwrap();
    fs.sync().unwrap();
    assert!(fs.statfs().unwrap().blocks_free > free, "and they are free once it is gone");
}

#[test]
fn a_pin_asks_for_what_a_write_does() {
    let fs = make();
    let ino = file(&fs, "f", 4);
    let guest = Cred { uid: 7, gid: 7, capabilities: Capabilities::NONE, ..ROOT };
    assert_eq!(fs.pin(ino, 0, P, &guest), Err(Error::PermissionDenied));
    fs.setattr(ino, &SetAttr { mode: Some(0o644), ..SetAttr::default() }, &ROOT).unwrap();
    assert_eq!(fs.pin(ino, 0, P, &guest), Err(Error::PermissionDenied), "reading is not enough");
    let pin = pin(&fs, ino, 0, 1);
    assert_eq!(fs.store(pin.id, 0, b"x", &guest), Err(Error::NotPermitted));
    assert_eq!(fs.load(pin.id, 0, &mut [0], &guest), Err(Error::NotPermitted));
    assert_eq!(fs.sync_pin(pin.id, &guest), Err(Error::NotPermitted));
    assert_eq!(fs.unpin(pin.id, &guest), Err(Error::NotPermitted));
    for (offset, length) in [(1, P), (0, 5), (0, 0), (3 * P, 2 * P), (P, u64::MAX - P + 1)] {
        assert!(
            matches!(fs.pin(ino, offset, length, &ROOT), Err(Error::Invalid(_) | Error::TooLarge)),
            "{length} bytes at {offset}"
        );
    }
    assert_eq!(fs.store(pin.id, P - 1, b"xy", &ROOT), Err(Error::Invalid("beyond the pinned range")));
    // A page that was never written has no place.
    fs.setattr(ino, &SetAttr { size: Some(10 * P), ..SetAttr::default() }, &ROOT).unwrap();
    assert!(matches!(fs.pin(ino, 8 * P, P, &ROOT), Err(Error::Invalid(_))));
    assert_eq!(fs.pin(Ino::ROOT, 0, P, &ROOT), Err(Error::IsDirectory));
    assert_eq!(fs.pins().len(), 1);
}

#[test]
fn a_full_table_and_a_full_window_pin_nothing() {
    let fs = make();
    let ino = file(&fs, "f", 40);
    assert_eq!(fs.pin(ino, 0, 16 * P, &ROOT), Err(Error::NoSpace), "15 pages, and the register of logs");
    let pins: Vec<Pin> = (0..4).map(|n| pin(&fs, ino, n * 4, 2)).collect();
    assert_eq!(fs.pin(ino, 20 * P, P, &ROOT), Err(Error::NoSpace), "the table has 4 entries");
    fs.unpin(pins[1].id, &ROOT).unwrap();
    assert_eq!(fs.pin(ino, 20 * P, 8 * P, &ROOT), Err(Error::NoSpace), "7 pages behind, 2 between");
    let large = pin(&fs, ino, 20, 7);
    assert_eq!((large.entries.len(), fs.device().entries().unwrap().len()), (1, 4));
    assert_eq!(read(&fs, ino, 21 * P, 2), [22, 22]);
}

#[test]
fn a_range_in_several_places_takes_several_entries() {
    let fs = make();
    // Two files that grow in turns, so that neither lies in one piece.
    let (one, two) = (file(&fs, "one", 0), file(&fs, "two", 0));
    for page in 0..4 {
        for ino in [one, two] {
            write(&fs, ino, page * P, &[page as u8 + 1; P as usize]);
            fs.fsync(ino, false).unwrap();
        }
    }
    let pin = pin(&fs, one, 0, 4);
    assert!(pin.entries.len() > 1, "{pin:?}");
    let mut bytes = [0; 4];
    fs.load(pin.id, P - 2, &mut bytes, &ROOT).unwrap();
    assert_eq!(bytes, [1, 1, 2, 2]);
    fs.store(pin.id, 3 * P - 1, b"ab", &ROOT).unwrap();
    assert_eq!(read(&fs, one, 3 * P - 1, 2), b"ab");
    fs.unpin(pin.id, &ROOT).unwrap();
    assert_eq!(read(&fs, one, 3 * P - 1, 2), b"ab");
}

#[test]
fn a_crash_with_pins_in_place_loses_nothing_that_was_synced() {
    for seed in 0..20 {
        let fs = make();
        let ino = file(&fs, "f", 8);
        let pin = pin(&fs, ino, 2, 3);
        write(&fs, ino, P + 4000, &[9; 200]);
        fs.fsync(ino, false).unwrap();
        fs.store(pin.id, P, b"stored and synced", &ROOT).unwrap();
        fs.sync_pin(pin.id, &ROOT).unwrap();
        fs.store(pin.id, 2 * P, b"stored", &ROOT).unwrap();
        let fs = power_loss(fs, seed);
        assert!(fs.device().entries().unwrap().is_empty() && fs.pins().is_empty());
        let ino = ino_of(&fs, "f");
        assert_eq!(read(&fs, ino, P + 4000, 200), [9; 200]);
        assert_eq!(read(&fs, ino, 3 * P, 17), b"stored and synced");
        assert_eq!(read(&fs, ino, 7 * P, 2), [8, 8]);
    }
}

#[test]
fn what_a_write_to_a_pinned_range_returned_from_is_durable() {
    // A store that is not synced may survive too: some of the seeds lose it.
    for seed in 0..20 {
        let fs = make();
        let ino = file(&fs, "f", 4);
        pin(&fs, ino, 1, 2);
        write(&fs, ino, P + 10, b"no fsync");
        let fs = power_loss(fs, seed);
        assert_eq!(read(&fs, ino_of(&fs, "f"), P + 10, 8), b"no fsync", "seed {seed}");
    }
}

#[test]
fn pages_of_a_file_removed_before_a_crash_harm_no_other_file() {
    let fs = make();
    let ino = file(&fs, "f", 8);
    let pin = pin(&fs, ino, 0, 8);
    fs.unlink(Ino::ROOT, name("f")).unwrap();
    fs.forget(ino, 1);
    fs.sync().unwrap();
    fs.store(pin.id, 0, &[0xAB; 4096], &ROOT).unwrap();
    fs.sync_pin(pin.id, &ROOT).unwrap();
    let fs = power_loss(fs, 1);
    // All that is free is given to another file.
    let other = file(&fs, "other", 200);
    fs.sync().unwrap();
    for page in 0..200_u8 {
        assert_eq!(read(&fs, other, u64::from(page) * P, P as usize), [page + 1; P as usize]);
    }
    let below = fs.into_below().expect("nobody else uses it");
    below.unmount().expect("it unmounts");
}

#[test]
fn a_power_loss_at_any_command_of_pin_and_unpin_loses_nothing() {
    let mut done = 0;
    for commands in 0..400 {
        let fs = make();
        let ino = file(&fs, "f", 6);
        fs.fsync(ino, false).unwrap();
        fs.device().cut_after_commands(commands, commands);
        let mut synced = false;
        let mut work = || {
            let pin = fs.pin(ino, P, 4 * P, &ROOT)?;
            fs.store(pin.id, 10, b"new", &ROOT)?;
            fs.sync_pin(pin.id, &ROOT)?;
            synced = true;
            fs.unpin(pin.id, &ROOT)?;
            fs.fsync(ino, false)
        };
        let outcome = work();
        done += u32::from(outcome.is_ok());
        let fs = power_loss(fs, commands);
        let ino = ino_of(&fs, "f");
        let found = read(&fs, ino, 0, 6 * P as usize);
        for page in 0..6_u8 {
            let page_bytes = &found[usize::from(page) * P as usize..][..P as usize];
            let expected = if page == 1 { &page_bytes[13..] } else { page_bytes };
            assert!(expected.iter().all(|byte| *byte == page + 1), "page {page}, cut after {commands}");
        }
        let new = &found[P as usize + 10..P as usize + 13];
        assert!(new == b"new" || !synced, "cut after {commands}: {new:?}");
        if outcome.is_ok() {
            break;
        }
    }
    assert_eq!(done, 1, "at last all of it is done");
}

#[test]
fn readers_see_a_write_across_a_pins_edge_whole() {
    Sim::new(5).run(|| {
        let fs = Arc::new(make());
        let ino = file(&fs, "f", 4);
        pin(&fs, ino, 1, 2);
        let writer = {
            let fs = Arc::clone(&fs);
            task::spawn("writer", move || {
                for round in 0..40_u8 {
                    write(&fs, ino, P - 50, &[round; 100]);
                }
            })
        };
        while !writer.is_finished() {
            let seen = read(&fs, ino, P - 50, 100);
            assert!(seen.iter().all(|byte| *byte == seen[0]) || seen[0] == 1, "{seen:?}");
        }
        writer.join();
    });
}

#[test]
fn pins_end_with_the_mount() {
    let fs = make();
    let ino = file(&fs, "f", 4);
    let pin = pin(&fs, ino, 0, 2);
    fs.store(pin.id, 0, b"kept", &ROOT).unwrap();
    let device = Arc::clone(fs.device());
    fs.into_below().expect("nobody else uses it").unmount().expect("it unmounts");
    assert!(device.entries().unwrap().is_empty());
    let fs = mount(&device);
    assert_eq!(read(&fs, ino_of(&fs, "f"), 0, 4), b"kept");
}

#[test]
fn random_use_with_pins_that_come_and_go_is_as_of_a_vector() {
    for seed in 0..8_u64 {
        let fs = make();
        let ino = file(&fs, "f", 12);
        let mut model = read(&fs, ino, 0, 12 * P as usize);
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut below = |most: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % most
        };
        for step in 0..600_u64 {
            let at = below(model.len() as u64 - 1);
            let len = (1 + below(9000)).min(model.len() as u64 - at) as usize;
            let range = at as usize..at as usize + len;
            match below(10) {
                0 => {
                    let from = below(11);
                    // Refused if it meets another or finds no room.
                    let _ = fs.pin(ino, from * P, (1 + below(12 - from)) * P, &ROOT);
                }
                1 => {
                    let pins = fs.pins();
                    if !pins.is_empty() {
                        let pin = &pins[below(pins.len() as u64) as usize];
                        fs.unpin(pin.id, &ROOT).expect("it can be unpinned");
                    }
                }
                2 => fs.fsync(ino, false).expect("it can be synced"),
                3..6 => {
                    write(&fs, ino, at, &vec![step as u8; len]);
                    model[range].fill(step as u8);
                }
                6 => {
                    let page = &[step as u8; 100];
                    write(&fs, ino, model.len() as u64, page);
                    model.extend_from_slice(page);
                }
                _ => assert_eq!(read(&fs, ino, at, len), model[range], "seed {seed}, step {step}"),
            }
        }
        let device = Arc::clone(fs.device());
        fs.into_below().expect("nobody else uses it").unmount().expect("it unmounts");
        let report = amphi_fs_ext4like::fsck::check(&device).expect("the image can be checked");
        assert!(report.findings.is_empty(), "{:#?}", report.findings);
        assert_eq!(read(&mount(&device), ino, 0, model.len()), model, "seed {seed}, after a mount");
    }
}

#[test]
fn a_check_of_a_device_with_pins_finds_no_damage() {
    let fs = make();
    let ino = file(&fs, "f", 4);
    pin(&fs, ino, 0, 3);
    fs.sync().unwrap();
    let device = Arc::clone(fs.device());
    device.power_cut(1);
    drop(fs);
    let device = Arc::new(Arc::into_inner(device).expect("nobody else has it").restart().expect("powers up"));
    assert_eq!(device.entries().unwrap().len(), 1);
    let report = amphi_fs_ext4like::fsck::check(&device).expect("the image can be checked");
    let harmless = |finding: &Finding| matches!(finding, Finding::NotCleanlyUnmounted { .. });
    assert!(report.findings.iter().all(harmless), "{:#?}", report.findings);
}
