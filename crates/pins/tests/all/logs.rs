//! Logs of programs that know nothing of pins (TB-13): a sync of one touches no flash and no journal, and
//! what it returned from is there after the power fails at any command of the device.

use std::sync::Arc;

use amphi_device::BaBuffer;
use amphi_fs_ext4like::{Ext4Like, FormatOptions, MountOptions};
use amphi_pins::Pinned;
use amphi_pins::logs::{Options, Rule};
use amphi_rt::{Schedule, Sim, task};
use amphi_ssd::{Firmware, Profile, Ssd};
use amphi_vfs::{Allocate, Cred, FileSystem, FileType, Ino, Name, SetAttr, WriteMode};

const P: u64 = 4096;
const ROOT: Cred = Cred::ROOT;

type Fs = Pinned<Ext4Like<Ssd>, Ssd>;

/// A device whose window has `pages` pages, one of which is the register, and `entries` entries.
fn device(pages: u64, entries: u64) -> Arc<Ssd> {
    device_like(Profile::named("2b-ssd").expect("built in"), pages, entries)
}

fn device_like(mut profile: Profile, pages: u64, entries: u64) -> Arc<Ssd> {
    profile.firmware.kind = Firmware::BaBuffer;
    (profile.log.region_bytes, profile.log.txlog_bytes) = (64 << 10, 4096);
    (profile.ba_buffer.bytes, profile.ba_buffer.entries) = (pages * P, entries);
    let device = Arc::new(Ssd::in_memory(&profile, 32 << 20));
    Ext4Like::format(&*device, &FormatOptions::default()).expect("it can be made");
    device
}

/// Every file is a log from its first sync on, in parts of `part` pages.
fn mount(device: &Arc<Ssd>, part: u64) -> Fs {
    let rules = vec![Rule::parse("*").expect("a rule")];
    let logs = Options { rules, part_bytes: Some(part * P), after_syncs: 1 };
    let options = MountOptions { commit_interval_ns: 0, ..MountOptions::default() };
    let below = || Ext4Like::mount(Arc::clone(device), options);
    Pinned::mount_with_logs(device, &logs, below).expect("it can be mounted")
}

fn file(fs: &Fs, name: &str) -> Ino {
    let name = Name::new(name.as_bytes()).expect("a name");
    match fs.lookup(Ino::ROOT, name) {
        Ok(entry) => entry.attr.ino,
        Err(_) => fs.create(Ino::ROOT, name, FileType::Regular, 0o600, 0, &ROOT).expect("made").attr.ino,
    }
}

fn append(fs: &Fs, ino: Ino, data: &[u8]) {
    let mode = WriteMode { append: true, ..WriteMode::default() };
    assert_eq!(fs.write(ino, 0, data, mode, &ROOT), Ok(data.len()));
}

fn contents(fs: &Fs, ino: Ino) -> Vec<u8> {
    let size = fs.getattr(ino).expect("it is there").size as usize;
    let mut bytes = vec![0xEE; size + 10];
    let got = fs.read(ino, 0, &mut bytes, false).expect("it can be read");
    assert_eq!(got, size, "a read ends with the file");
    bytes.truncate(size);
    bytes
}

/// Unmounts, checks, and mounts again.
fn remount(fs: Fs, part: u64) -> Fs {
    let device = Arc::clone(fs.device());
    fs.into_below().expect("nobody else uses it").unmount().expect("it unmounts");
    assert_eq!(device.entries().unwrap(), [], "nothing stays pinned");
    let report = amphi_fs_ext4like::fsck::check(&device).expect("the image can be checked");
    assert!(report.findings.is_empty(), "{:#?}", report.findings);
    mount(&device, part)
}

#[test]
fn a_sync_of_a_log_takes_microseconds_and_touches_neither_flash_nor_journal() {
    Sim::new(1).run(|| {
        let fs = mount(&device(65, 4), 16);
        let ino = file(&fs, "log");
        append(&fs, ino, b"begin");
        fs.fsync(ino, true).expect("the first one makes it a log");
        assert_eq!(fs.device().entries().unwrap().len(), 1);
        let pages = |fs: &Fs| fs.device().stats().flash_host.pages_written;
        let (before, commits) = (pages(&fs), fs.below().commits());
        for round in 0..100_u8 {
            append(&fs, ino, &[round; 100]);
            let begun = amphi_rt::time::now_ns();
            fs.fsync(ino, true).unwrap();
            let took_ns = amphi_rt::time::now_ns() - begun;
            assert!((600..6000).contains(&took_ns), "{took_ns} ns");
        }
        assert_eq!((pages(&fs), fs.below().commits()), (before, commits));
        assert_eq!(contents(&fs, ino).len(), 5 + 100 * 100);
        fs.device().power_cut(7);
        let device = Arc::clone(fs.device());
        drop(fs);
        let device = Arc::into_inner(device).expect("nobody else has it").restart().expect("powers up");
        let fs = mount(&Arc::new(device), 16);
        let found = contents(&fs, file(&fs, "log"));
        assert_eq!(found.len(), 5 + 100 * 100);
        assert_eq!(found[5 + 99 * 100..], [99; 100]);
    });
}

/// Between two syncs the program goes from one part into the next: what it wrote at the end of the first is
/// there, too. It was read as zeros, since only the part with the file's end said how far it reaches.
#[test]
fn a_sync_across_two_parts_brings_the_end_of_the_first() {
    Sim::new(1).run(|| {
        let fs = mount(&device(65, 4), 4);
        let ino = file(&fs, "log");
        append(&fs, ino, b"begin");
        fs.fsync(ino, true).expect("the first one makes it a log");
        append(&fs, ino, &[1; 5000]);
        fs.fsync(ino, true).unwrap();
        append(&fs, ino, &[2; 9000]);
        amphi_rt::time::sleep_ns(1_000_000_000);
        append(&fs, ino, &[3; 3000]);
        fs.fsync(ino, true).unwrap();
        let due = contents(&fs, ino);
        assert_eq!(due.len(), 17_005, "it ends in the second part");
        fs.device().power_cut(7);
        let device = Arc::clone(fs.device());
        drop(fs);
        let device = Arc::into_inner(device).expect("nobody else has it").restart().expect("powers up");
        let fs = mount(&Arc::new(device), 4);
        assert!(contents(&fs, file(&fs, "log")) == due);
    });
}

/// The next part is pinned before those behind are flushed, and early enough: at the end of a part a program
/// that hardly computes waited for both, 292 us.
#[test]
fn a_program_does_not_wait_where_one_part_of_its_log_ends() {
    Sim::new(1).run(|| {
        let fs = mount(&device(2048, 8), 128);
        let ino = file(&fs, "log");
        append(&fs, ino, b"begin");
        fs.fsync(ino, true).expect("the first one makes it a log");
        let mut slowest_ns = 0;
        for round in 0..1000_u32 {
            let begun = amphi_rt::time::now_ns();
            append(&fs, ino, &[round as u8; 4120]);
            fs.fsync(ino, true).unwrap();
            slowest_ns = slowest_ns.max(amphi_rt::time::now_ns() - begun);
            amphi_rt::time::sleep_ns(1000);
        }
        assert!(slowest_ns < 6000, "{slowest_ns} ns");
        assert!(fs.device().stats().pins > 7);
    });
}

/// What a part has already is loaded into it when it is pinned. Without an engine for that it was an error.
#[test]
fn a_log_is_pinned_again_where_the_window_cannot_be_read_by_dma() {
    let profile = Profile::named("mssd-pcie3").expect("built in");
    assert_eq!(profile.link.dma_read_ns, 0);
    let fs = mount(&device_like(profile, 65, 4), 4);
    let ino = file(&fs, "log");
    append(&fs, ino, &[1; 8272]);
    fs.fsync(ino, true).expect("the first one makes it a log");
    let fs = remount(fs, 4);
    let ino = file(&fs, "log");
    append(&fs, ino, &[2; 100]);
    fs.fsync(ino, true).expect("it is a log again");
    assert_eq!(fs.device().entries().unwrap().len(), 1);
    assert_eq!(contents(&fs, ino), [vec![1; 8272], vec![2; 100]].concat());
    remount(fs, 4);
}

#[test]
fn a_log_of_many_parts_is_one_file_and_leaves_no_room_behind() {
    let fs = mount(&device(17, 4), 4);
    let ino = file(&fs, "log");
    let mut due = Vec::new();
    for round in 0..400_u32 {
        let record = vec![round as u8; 1 + (round % 700) as usize];
        append(&fs, ino, &record);
        due.extend_from_slice(&record);
        if round % 3 > 0 {
            fs.fsync(ino, true).unwrap();
        }
        if round % 50 == 0 {
            assert!(contents(&fs, ino) == due, "round {round}");
        }
    }
    let fs = remount(fs, 4);
    let ino = file(&fs, "log");
    assert!(contents(&fs, ino) == due);
    assert_eq!(
        fs.getattr(ino).unwrap().blocks,
        (due.len() as u64).div_ceil(P) * 8,
        "no room is left reserved"
    );
}

#[test]
fn a_file_written_again_from_its_start_is_a_log_as_well() {
    let fs = mount(&device(17, 4), 4);
    let ino = file(&fs, "000001");
    let mut due = vec![0; 20 * P as usize];
    fs.write(ino, 0, &due, WriteMode::default(), &ROOT).unwrap();
    fs.fsync(ino, false).unwrap();
    // Pages are written as wholes, as PostgreSQL does: a little more of each every time.
    let mut before = None;
    for at in (0..15 * P as usize).step_by(200) {
        due[at..at + 200].fill(((at / 200) as u8).wrapping_add(1));
        let page = at / P as usize * P as usize;
        let end = (at + 200).next_multiple_of(P as usize);
        fs.write(ino, page as u64, &due[page..end], WriteMode::default(), &ROOT).unwrap();
        fs.fsync(ino, true).unwrap();
        before.get_or_insert_with(|| fs.below().commits());
    }
    assert_eq!(Some(fs.below().commits()), before, "the size never changed");
    assert!(contents(&fs, ino) == due);
    let fs = remount(fs, 4);
    assert!(contents(&fs, file(&fs, "000001")) == due);
}

/// Pages inside of a file that were only reserved, or not even that, showed what others had left on the
/// device, and what was written and synced there was lost with the power.
#[test]
fn a_log_in_what_was_reserved_reads_as_zeros_and_keeps_what_was_synced() {
    for is_reserved in [true, false] {
        let device = device(17, 4);
        let fs = mount(&device, 4);
        let old = file(&fs, "old");
        let all = vec![0xAA; 16 << 20];
        fs.write(old, 0, &all, WriteMode::default(), &ROOT).unwrap();
        fs.fsync(old, false).unwrap();
        fs.unlink(Ino::ROOT, Name::new(b"old").unwrap()).unwrap();
        fs.forget(old, 1);
        fs.sync().unwrap();

        let ino = file(&fs, "log");
        let size = 6 * P;
        if is_reserved {
            let all = Allocate::Reserve { keep_size: false };
            fs.allocate(ino, 0, size, all, &ROOT).unwrap();
        } else {
            fs.setattr(ino, &SetAttr { size: Some(size), ..SetAttr::default() }, &ROOT).unwrap();
        }
        let mut due = vec![0; size as usize];
        for at in [100, 5000, 3 * P as usize + 7] {
            due[at..at + 50].fill(7);
            fs.write(ino, at as u64, &due[at..at + 50], WriteMode::default(), &ROOT).unwrap();
            fs.fsync(ino, true).unwrap();
        }
        assert!(!device.entries().unwrap().is_empty(), "it is a log");
        assert!(contents(&fs, ino) == due, "reserved: {is_reserved}");
        device.power_cut(1);
        drop(fs);
        let device = Arc::into_inner(device).expect("nobody else has it").restart().expect("it starts");
        let fs = mount(&Arc::new(device), 4);
        assert!(contents(&fs, file(&fs, "log")) == due, "reserved: {is_reserved}, after a crash");
    }
}

/// The part was pinned where the last write had been, behind the new end: what was written before it counted
/// as no part of the file, and was punched out with what was reserved.
#[test]
fn a_log_that_was_cut_before_its_first_sync_goes_on_at_its_end() {
    let fs = mount(&device(17, 4), 2);
    let ino = file(&fs, "log");
    fs.write(ino, 22_478, &[1; 4012], WriteMode::default(), &ROOT).unwrap();
    fs.setattr(ino, &SetAttr { size: Some(115), ..SetAttr::default() }, &ROOT).unwrap();
    fs.fsync(ino, true).unwrap();
    append(&fs, ino, &[2; 4036]);
    let due = [vec![0; 115], vec![2; 4036]].concat();
    assert!(contents(&fs, ino) == due, "it is read");
    fs.fsync(ino, false).unwrap();
    assert!(contents(&fs, ino) == due, "it is read once it is synced");
    let fs = remount(fs, 2);
    assert!(contents(&fs, file(&fs, "log")) == due);
}

#[test]
fn what_else_is_done_with_a_log_finds_it_as_a_file() {
    let fs = mount(&device(17, 4), 4);
    let log = |name: &str| {
        let ino = file(&fs, name);
        append(&fs, ino, &[7; 5000]);
        fs.fsync(ino, true).unwrap();
        append(&fs, ino, b"behind");
        fs.fsync(ino, true).unwrap();
        assert!(!fs.device().entries().unwrap().is_empty());
        ino
    };
    let pinned = || fs.device().entries().unwrap().len();
    let ino = log("cut");
    fs.setattr(ino, &SetAttr { size: Some(5003), ..SetAttr::default() }, &ROOT).unwrap();
    assert_eq!((pinned(), contents(&fs, ino).split_off(4998)), (0, b"\x07\x07beh".to_vec()));
    fs.setattr(ino, &SetAttr { size: Some(5010), ..SetAttr::default() }, &ROOT).unwrap();
    assert_eq!(contents(&fs, ino).split_off(5000), b"beh\0\0\0\0\0\0\0");
    let ino = log("punched");
    fs.allocate(ino, 4000, 2000, Allocate::PunchHole, &ROOT).unwrap();
    assert_eq!(
        (pinned(), contents(&fs, ino).split_off(3999)),
        (0, [&[7][..], &[0; 1006]].concat().split_off(0)[..1007].to_vec())
    );
    let ino = log("hole");
    fs.write(ino, 20_000, b"far", WriteMode::default(), &ROOT).unwrap();
    assert_eq!(contents(&fs, ino).split_off(5000)[..7], *b"behind\0");
    let ino = log("pinned by hand");
    fs.pin(ino, 0, P, &ROOT).expect("logs step aside");
    append(&fs, ino, b"more");
    fs.fsync(ino, true).unwrap();
    assert_eq!((pinned(), contents(&fs, ino).split_off(5000)), (1, b"behindmore".to_vec()));
    let ino = log("removed");
    let free = fs.statfs().unwrap().blocks_free;
    fs.unlink(Ino::ROOT, Name::new(b"removed").unwrap()).unwrap();
    assert_eq!(contents(&fs, ino).len(), 5006, "who has it open reads on");
    fs.forget(ino, u64::MAX);
    assert!(fs.statfs().unwrap().blocks_free > free, "its blocks are free");
}

#[test]
fn the_log_that_was_synced_longest_ago_gives_its_room_to_another() {
    let fs = mount(&device(16, 2), 4);
    let names = ["a", "b", "c", "d"];
    for round in 0..8_u8 {
        for name in names {
            let ino = file(&fs, name);
            append(&fs, ino, &[round; 1500]);
            fs.fsync(ino, true).unwrap();
        }
        assert!(fs.device().entries().unwrap().len() <= 2);
    }
    let fs = remount(fs, 4);
    for name in names {
        let found = contents(&fs, file(&fs, name));
        assert_eq!(found.len(), 8 * 1500);
        assert!((0..8).all(|round| found[round * 1500..][..1500] == [round as u8; 1500]), "{name}");
    }
}

/// A write to a pinned range whose pin ends as it comes, in a file that becomes a log then: it went past the
/// log, to pages that the log had pinned, and was refused.
#[test]
fn a_write_that_meets_the_end_of_a_pin_is_the_logs() {
    let schedule = Schedule::Random { per_mille: 300, delay_ns: 5_000_000 };
    Sim::explore(0..100).schedule(schedule).run(|| {
        let fs = Arc::new(mount(&device(65, 4), 4));
        let ino = file(&fs, "log");
        append(&fs, ino, &[1; 3 * P as usize]);
        fs.sync().expect("room");
        let pin = fs.pin(ino, 0, P, &ROOT).expect("it can be pinned").id;
        let other = Arc::clone(&fs);
        let writer = task::spawn("writer", move || {
            let mode = WriteMode::default();
            assert_eq!(other.write(ino, 0, &[2; 100], mode, &ROOT), Ok(100));
        });
        fs.unpin(pin, &ROOT).expect("it is there");
        for byte in [3, 4] {
            assert_eq!(fs.write(ino, 200, &[byte; 100], WriteMode::default(), &ROOT), Ok(100));
            fs.fsync(ino, true).expect("room");
        }
        writer.join();
        let found = contents(&fs, ino);
        assert_eq!(found[..100], [2; 100]);
        assert_eq!(found[200..300], [4; 100]);
    });
}

/// What a file may hold: its contents when it was last synced, and after each change since.
#[derive(Default)]
struct History(Vec<Vec<u8>>);

impl History {
    fn now(&self) -> Vec<u8> {
        self.0.last().cloned().unwrap_or_default()
    }

    fn synced(&mut self) {
        self.0 = vec![self.now()];
    }

    fn judge(&self, found: &[u8]) -> Result<(), String> {
        let shortest = self.0.iter().map(Vec::len).min().unwrap_or(0);
        let longest = self.0.iter().map(Vec::len).max().unwrap_or(0);
        if !(shortest..=longest).contains(&found.len()) {
            return Err(format!("{} bytes, not {shortest} to {longest}", found.len()));
        }
        // The rest of a page that a cut ends in is zeroed in place before the journal has the new end.
        let is_cut = |at: usize| {
            let cuts = self.0.windows(2).filter(|pair| pair[1].len() < pair[0].len());
            cuts.map(|pair| pair[1].len()..pair[0].len().min(pair[1].len().next_multiple_of(P as usize)))
                .any(|zeroed| zeroed.contains(&at))
        };
        let may_be = |at: usize, byte: u8| {
            self.0.iter().any(|past| past.get(at).is_some_and(|due| *due == byte)) || byte == 0 && is_cut(at)
        };
        match found.iter().enumerate().find(|(at, byte)| !may_be(*at, **byte)) {
            Some((at, byte)) => Err(format!("byte {at} is {byte}, which it never was")),
            None => Ok(()),
        }
    }
}

/// Mounts as far as the cut lets it, crashes it again, and powers it up.
fn recovered_and_crashed(device: Ssd, seed: u64) -> Ssd {
    let device = Arc::new(device);
    let logs = Options::default();
    let options = MountOptions { commit_interval_ns: 0, ..MountOptions::default() };
    let below = || Ext4Like::mount(Arc::clone(&device), options);
    drop(Pinned::mount_with_logs(&device, &logs, below));
    if device.has_power() {
        device.host_crash(seed);
    }
    Arc::into_inner(device).expect("nobody else has it").restart().expect("powers up")
}

/// Two logs are appended to, written over at their ends, cut and synced until the power fails after so many
/// commands. `Ok(false)`: it did not.
fn run(commands: u64, seed: u64) -> Result<bool, String> {
    Sim::new(seed).run(|| {
        let fs = mount(&device(16, 3), 3);
        let inos = [file(&fs, "a"), file(&fs, "b")];
        fs.sync().map_err(|error| format!("beginning: {error}"))?;
        let mut histories = [History(vec![Vec::new()]), History(vec![Vec::new()])];
        fs.device().cut_after_commands(commands, seed);
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut below = |most: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % most
        };
        for step in 1..120_u64 {
            let which = below(2) as usize;
            let (ino, history) = (inos[which], &mut histories[which]);
            let mut now = history.now();
            let outcome = match below(16) {
                0..7 => {
                    let record = vec![step as u8; 1 + below(2500) as usize];
                    now.extend_from_slice(&record);
                    let mode = WriteMode { append: true, ..WriteMode::default() };
                    history.0.push(now);
                    fs.write(ino, 0, &record, mode, &ROOT).map(drop)
                }
                7..9 => {
                    let from = now.len().saturating_sub(below(5000) as usize);
                    let record = vec![step as u8; 1 + below(3000) as usize];
                    now.resize(now.len().max(from + record.len()), 0);
                    now[from..from + record.len()].copy_from_slice(&record);
                    history.0.push(now);
                    fs.write(ino, from as u64, &record, WriteMode::default(), &ROOT).map(drop)
                }
                9 if now.len() > 30_000 => {
                    now.truncate(below(9000) as usize);
                    let size = Some(now.len() as u64);
                    history.0.push(now);
                    fs.setattr(ino, &SetAttr { size, ..SetAttr::default() }, &ROOT).map(drop)
                }
                _ => fs.fsync(ino, true).map(|()| history.synced()),
            };
            if outcome.is_err() {
                break;
            }
        }
        let device = Arc::clone(fs.device());
        let was_cut = !device.has_power();
        if !was_cut {
            device.host_crash(seed);
        }
        drop(fs);
        let mut device = Arc::into_inner(device).expect("nobody else has it").restart().expect("powers up");
        // Recovery is cut, too, at one of its first moments.
        device.cut_after_commands(commands % 40, seed);
        device = recovered_and_crashed(device, seed);
        let fs = mount(&Arc::new(device), 3);
        for (name, history) in ["a", "b"].into_iter().zip(&histories) {
            history.judge(&contents(&fs, file(&fs, name))).map_err(|why| format!("{name}: {why}"))?;
        }
        let _checked = remount(fs, 3);
        Ok(was_cut)
    })
}

#[test]
fn what_a_sync_returned_from_is_there_after_a_power_cut_at_any_command() {
    let step = if std::env::var_os("AMPHI_TEST_LONG").is_some() { 1 } else { 23 };
    for seed in 1..4 {
        let mut moment = seed;
        loop {
            match run(moment, seed) {
                Ok(true) => moment += step,
                Ok(false) => break assert!(moment > 100, "the run ended after {moment} commands"),
                Err(why) => panic!("seed {seed}, cut after {moment} commands: {why}"),
            }
        }
    }
}
