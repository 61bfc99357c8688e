//! BA-WAL whose log is a file (TB-12): it keeps what was acknowledged over power cuts at any command of the
//! device, in every mode, and names what was done to the file behind its back.

use std::sync::Arc;

use amphi_device::{BaBuffer, EntryId, Lpa};
use amphi_fs_ext4like::{Ext4Like, FormatOptions, MountOptions};
use amphi_pins::{Pinned, PinnedFile};
use amphi_rt::sync::Mutex;
use amphi_rt::{Sim, task};
use amphi_ssd::{Firmware, Profile, Ssd};
use amphi_vfs::{Cred, Error, FileSystem, FileType, Ino, Name, SetAttr, WriteMode};
use amphi_wal::{Log, Mode, Options, Place, Record, Recovery};

const ROOT: Cred = Cred::ROOT;
const P: u64 = 4096;
/// A header page and ten pages of records: five halves.
const PLACE: Place = Place { at: Lpa(0), pages: 11 };
const MODES: [Mode; 3] = [Mode::Sync, Mode::Async, Mode::Ba];

type Fs = Pinned<Ext4Like<Ssd>, Ssd>;
type Device = PinnedFile<Ext4Like<Ssd>, Ssd>;

fn options(mode: Mode) -> Options {
    Options { mode, window: P, half_bytes: 2 * P, entries: [EntryId(3), EntryId(9)] }
}

fn mount(device: &Arc<Ssd>) -> Arc<Fs> {
    let options = MountOptions { commit_interval_ns: 0, ..MountOptions::default() };
    let below = || Ext4Like::mount(Arc::clone(device), options);
    Arc::new(Pinned::mount(device, below).expect("it can be mounted"))
}

/// A file system with an empty log in the file `log`, of user 7.
fn make() -> Arc<Fs> {
    let mut profile = Profile::named("2b-ssd").expect("built in");
    profile.firmware.kind = Firmware::BaBuffer;
    (profile.log.region_bytes, profile.log.txlog_bytes) = (64 << 10, 4096);
    (profile.ba_buffer.bytes, profile.ba_buffer.entries) = (16 * P, 4);
    let device = Arc::new(Ssd::in_memory(&profile, 32 << 20));
    Ext4Like::format(&*device, &FormatOptions::default()).expect("it can be made");
    let fs = mount(&device);
    let made = fs.create(Ino::ROOT, name(), FileType::Regular, 0o600, 0, &user(7)).expect("made");
    PinnedFile::fill(&fs, made.attr.ino, PLACE.pages, &user(7)).expect("has room");
    amphi_wal::create(&file(&fs, 7).expect("is the user's"), &PLACE).expect("makes a log");
    fs
}

fn user(uid: u32) -> Cred {
    Cred::user(uid, uid)
}

fn name() -> Name<'static> {
    Name::new(b"log").expect("a name")
}

fn ino(fs: &Fs) -> Ino {
    let ino = fs.lookup(Ino::ROOT, name()).expect("it is there").attr.ino;
    fs.forget(ino, 1);
    ino
}

fn file(fs: &Arc<Fs>, uid: u32) -> amphi_vfs::Result<Device> {
    PinnedFile::open(fs, ino(fs), &user(uid))
}

fn open(fs: &Arc<Fs>, mode: Mode) -> amphi_wal::Result<(Vec<Record>, Log<Device>)> {
    let device = Arc::new(file(fs, 7).expect("is the user's"));
    let mut recovery = Recovery::begin(device, PLACE, options(mode))?;
    let records = recovery.by_ref().collect::<amphi_wal::Result<_>>()?;
    Ok((records, recovery.open()?))
}

fn crash(fs: Arc<Fs>, seed: u64) -> Arc<Fs> {
    let device = Arc::clone(fs.device());
    if device.has_power() {
        if seed.is_multiple_of(2) { device.host_crash(seed) } else { device.power_cut(seed) }
    }
    drop(Arc::into_inner(fs).expect("nobody else has it"));
    mount(&Arc::new(Arc::into_inner(device).expect("nobody else has it").restart().expect("powers up")))
}

fn content(number: u64) -> Vec<u8> {
    vec![number as u8; [60, 700, 200][(number % 3) as usize]]
}

#[test]
fn a_log_in_a_file_is_read_back_in_every_mode_after_every_mode() {
    let fs = make();
    let mut next = 1;
    for mode in MODES {
        for then in MODES {
            let (before, log) = open(&fs, mode).expect("opens");
            for _ in 0..5 {
                assert_eq!(log.append(&content(next)), Ok(next));
                next += 1;
            }
            log.close().expect("closes");
            assert_eq!(fs.device().entries().unwrap(), [], "{mode:?}: nothing stays pinned");
            let (found, log) = open(&fs, then).expect("opens");
            assert_eq!(found.len(), before.len() + 5);
            for record in &found {
                assert_eq!(record.content, content(record.sequence), "{mode:?} then {then:?}");
            }
            log.truncate().expect("drops them");
            assert_eq!(log.append(&content(next)), Ok(next));
            log.commit().expect("commits");
            next += 1;
        }
    }
    let device = Arc::clone(fs.device());
    let fs = Arc::into_inner(fs).expect("nobody else has it");
    fs.into_below().expect("nobody else uses it").unmount().expect("it unmounts");
    let report = amphi_fs_ext4like::fsck::check(&device).expect("the image can be checked");
    assert!(report.findings.is_empty(), "{:#?}", report.findings);
}

/// Two tasks append and commit until the power fails after so many commands. `Ok(false)`: it did not.
fn run(mode: Mode, commands: u64) -> Result<bool, String> {
    Sim::new(commands).run(|| {
        let fs = make();
        let log = Arc::new(open(&fs, mode).map_err(|error| format!("opening: {error}"))?.1);
        let acknowledged = Arc::new(Mutex::new(0));
        fs.device().cut_after_commands(commands, commands);
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let (log, acknowledged) = (Arc::clone(&log), Arc::clone(&acknowledged));
                let order = Arc::clone(&acknowledged);
                task::spawn("writer", move || {
                    for _ in 0..24 {
                        // The content says the number, so nobody appends between the two.
                        let held = order.lock();
                        let Ok(sequence) = log.append(&content(log.next())) else { return };
                        drop(held);
                        if log.commit().is_err() {
                            return;
                        }
                        assert!(mode == Mode::Async || log.durable() >= sequence, "a commit returned early");
                        let mut acknowledged = acknowledged.lock();
                        *acknowledged = log.durable().max(*acknowledged);
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(task::JoinHandle::join);
        drop(log);
        let was_cut = !fs.device().has_power();
        let mut fs = crash(fs, commands);
        let mut expected = *acknowledged.lock();
        for life in 0..2 {
            let (found, log) = open(&fs, mode).map_err(|error| format!("life {life}: {error}"))?;
            if (found.len() as u64) < expected {
                return Err(format!("life {life}: {expected} were acknowledged, {} are there", found.len()));
            }
            for (number, record) in (1..).zip(&found) {
                if record.sequence != number || record.content != content(number) {
                    return Err(format!("life {life}: record {number} is {record:?}"));
                }
            }
            if log.append(&content(found.len() as u64 + 1)).is_ok() {
                log.commit().map_err(|error| format!("life {life}: {error}"))?;
            }
            expected = log.durable();
            drop(log);
            fs = crash(fs, commands + 1);
        }
        Ok(was_cut)
    })
}

#[test]
fn a_power_cut_at_any_command_loses_nothing_that_was_acknowledged() {
    for (mode, step) in [(Mode::Ba, 1), (Mode::Sync, 5), (Mode::Async, 5)] {
        let mut moment = 0;
        loop {
            match run(mode, moment) {
                Ok(true) => moment += step,
                Ok(false) => {
                    break assert!(
                        mode == Mode::Async || moment > 10,
                        "{mode:?}: the run ended after {moment} commands"
                    );
                }
                Err(why) => panic!("{mode:?}, cut after {moment} commands: {why}"),
            }
        }
    }
}

#[test]
fn a_file_of_another_user_is_not_opened() {
    let fs = make();
    assert_eq!(file(&fs, 8).err(), Some(Error::PermissionDenied));
    assert!(matches!(PinnedFile::open(&fs, Ino::ROOT, &ROOT).err(), Some(Error::Invalid(_))));
}

#[test]
fn what_is_done_to_the_file_behind_the_logs_back_is_named_and_loses_nothing_else() {
    let fs = make();
    let (_, log) = open(&fs, Mode::Ba).expect("opens");
    for number in 1..=40 {
        log.append(&content(number)).expect("there is room");
        log.commit().expect("commits");
    }
    let cut = SetAttr { size: Some(3 * P), ..SetAttr::default() };
    assert!(matches!(fs.setattr(ino(&fs), &cut, &ROOT), Err(Error::Busy(_))), "some of it is pinned");
    log.close().expect("closes");
    // A byte of a record in the middle: the log ends before it.
    let (found, log) = open(&fs, Mode::Ba).expect("opens");
    assert_eq!(found.len(), 40);
    drop(log);
    fs.write(ino(&fs), 2 * P + 50, b"behind", WriteMode::default(), &ROOT).unwrap();
    let (found, log) = open(&fs, Mode::Ba).expect("opens");
    assert!((1..40).contains(&found.len()), "{}", found.len());
    drop(log);
    // Cut, and cut to nothing.
    fs.setattr(ino(&fs), &cut, &ROOT).unwrap();
    let refused = |fs| open(fs, Mode::Ba).map(|_| ()).unwrap_err();
    assert!(matches!(refused(&fs), amphi_wal::Error::Place(_)), "{:?}", refused(&fs));
    PinnedFile::fill(&fs, ino(&fs), PLACE.pages, &ROOT).unwrap();
    assert!(!open(&fs, Mode::Ba).expect("what is left is a log").0.is_empty());
    fs.setattr(ino(&fs), &SetAttr { size: Some(0), ..SetAttr::default() }, &ROOT).unwrap();
    PinnedFile::fill(&fs, ino(&fs), PLACE.pages, &ROOT).unwrap();
    assert!(matches!(refused(&fs), amphi_wal::Error::Damaged { .. }));
}

#[test]
fn a_log_finds_no_room_where_others_have_pinned_all_and_goes_on_when_they_leave() {
    let fs = make();
    let other = fs.create(Ino::ROOT, Name::new(b"other").unwrap(), FileType::Regular, 0o600, 0, &ROOT);
    let other = other.expect("made").attr.ino;
    PinnedFile::fill(&fs, other, 15, &ROOT).unwrap();
    let pin = fs.pin(other, 0, 15 * P, &ROOT).expect("there is room");
    let (_, log) = open(&fs, Mode::Ba).expect("opens");
    log.append(b"kept").unwrap();
    let refused = log.commit().unwrap_err();
    assert!(matches!(refused, amphi_wal::Error::Device(amphi_device::Error::NoSpace(_))), "{refused:?}");
    fs.unpin(pin.id, &ROOT).unwrap();
    log.commit().expect("there is room now");
    drop(log);
    let (found, _) = open(&crash(fs, 1), Mode::Ba).expect("opens");
    assert_eq!(found, [Record { sequence: 1, content: b"kept".to_vec() }]);
}
