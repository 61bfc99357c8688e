//! The log as its user meets it: what is read back, what a commit costs in each mode, and what hostile bytes,
//! strangers' pins, a full log and a failing device answer.

use std::sync::Arc;

use amphi_device::{BaBuffer, BlockPort, EntryId, Error as DeviceError, Lpa, PinError, Structure};
use amphi_rt::{Sim, task};
use amphi_ssd::{Firmware, Ssd};
use amphi_wal::{Error, Mode, Options, Place, RECORD_MAX, Record, Recovery};

use crate::rig::{CAPACITY, PLACE, device, log, open, options, restart};

const TAG: Structure = Structure::Journal;
const MODES: [Mode; 3] = [Mode::Sync, Mode::Async, Mode::Ba];

fn record(sequence: u64, length: usize) -> Record {
    Record { sequence, content: (0..length).map(|byte| (sequence as usize * 7 + byte) as u8).collect() }
}

/// The bytes of the page `number` of the log.
fn page(device: &Ssd, number: u64) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    device.read(PLACE.at.plus(number), &mut bytes, TAG).expect("reads");
    bytes
}

#[test]
fn records_of_all_lengths_are_read_back_in_every_mode_after_every_mode() {
    for mode in MODES {
        for then in MODES {
            let (device, log) = log(mode);
            let lengths = [0, 1, 40, 4096 - 24, 9000, 3, 8191, 5];
            let records: Vec<_> = (1..).zip(lengths).map(|(number, length)| record(number, length)).collect();
            for (number, record) in records.iter().enumerate() {
                assert_eq!(log.append(&record.content), Ok(record.sequence));
                if number % 3 == 2 {
                    log.commit().expect("commits");
                }
            }
            log.close().expect("closes");
            assert_eq!(device.entries(), Ok(Vec::new()), "{mode:?}");
            let (found, log) = open(&device, then).expect("opens");
            assert!(found == records, "{mode:?} then {then:?}");
            assert_eq!(log.durable(), 8);
            let next = record(9, 700);
            assert_eq!(log.append(&next.content), Ok(9));
            log.commit().expect("commits");
            drop(log);
            let (found, _) = open(&device, mode).expect("opens");
            assert!(found[..8] == records && found[8..] == [next], "{mode:?} then {then:?}");
        }
    }
}

#[test]
fn a_commit_returns_when_its_mode_says_so() {
    for mode in MODES {
        Sim::new(1).run(|| {
            let (device, log) = log(mode);
            log.append(&[7; 100]).expect("appends");
            assert_eq!(log.durable(), 0);
            let begun = amphi_rt::time::now_ns();
            log.commit().expect("commits");
            let took_ns = amphi_rt::time::now_ns() - begun;
            assert_eq!(log.durable(), u64::from(mode != Mode::Async), "{mode:?}");
            match mode {
                Mode::Async => assert_eq!(took_ns, 0),
                // The first commit waits for the pin; a block write takes 10 µs and more.
                Mode::Ba => {
                    log.append(&[7; 100]).expect("appends");
                    let before = device.stats().flash_host.pages_written;
                    let begun = amphi_rt::time::now_ns();
                    log.commit().expect("commits");
                    let took_ns = amphi_rt::time::now_ns() - begun;
                    assert!((600..2000).contains(&took_ns), "{took_ns} ns");
                    assert_eq!(device.stats().flash_host.pages_written, before, "no flash is touched");
                }
                Mode::Sync => assert!(took_ns >= 10_000, "{took_ns} ns"),
            }
            log.close().expect("closes");
            assert!(!open(&device, mode).expect("opens").0.is_empty());
        });
    }
}

#[test]
fn one_flush_brings_a_whole_half_to_flash_and_the_other_takes_records_meanwhile() {
    let (device, log) = log(Mode::Ba);
    for number in 1..=20 {
        log.append(&record(number, 1100).content).expect("appends");
        log.commit().expect("commits");
    }
    let stats = device.stats();
    assert_eq!(stats.entry_syncs, 22, "two records lie across the end of a half");
    log.close().expect("closes");
    // Two halves became full, two were in use at the end.
    assert_eq!((device.stats().pins, device.stats().entry_flushes), (4, 4));
}

#[test]
fn a_full_log_refuses_records_until_it_is_truncated_and_the_numbers_go_on() {
    for mode in MODES {
        let (device, log) = log(mode);
        let mut left = CAPACITY as u64;
        let mut last = 0;
        for content in [1000, 7000, 9000].into_iter().cycle().map(|length| record(1, length).content) {
            let needed = 24 + content.len() as u64;
            let outcome = log.append(&content);
            if needed > left {
                assert_eq!(outcome, Err(Error::Full { needed, left }));
                break;
            }
            (last, left) = (outcome.expect("fits"), left - needed);
        }
        // The last byte can be used, and nothing behind it.
        assert_eq!(log.append(&record(1, left as usize - 24).content), Ok(last + 1));
        assert_eq!(log.append(&[]), Err(Error::Full { needed: 24, left: 0 }));
        log.commit().expect("commits");
        log.close().expect("closes");
        let (found, log) = open(&device, mode).expect("opens");
        assert_eq!(found.len() as u64, last + 1);
        assert_eq!(log.append(&[]), Err(Error::Full { needed: 24, left: 0 }));
        log.truncate().expect("truncates");
        let next = record(last + 2, 3000);
        assert_eq!(log.append(&next.content), Ok(last + 2));
        log.commit().expect("commits");
        drop(log);
        let (found, log) = open(&device, mode).expect("opens");
        assert_eq!(found, [next]);
        log.truncate().expect("truncates");
        drop(log);
        let (found, log) = open(&device, mode).expect("opens");
        assert_eq!((found.len(), log.append(&[])), (0, Ok(last + 3)));
        let most = RECORD_MAX;
        assert_eq!(log.append(&vec![0; most + 1]), Err(Error::TooLarge { bytes: most + 1, most }));
    }
}

#[test]
fn tasks_that_share_a_log_commit_each_others_records() {
    let (device, log) = log(Mode::Ba);
    let log = Arc::new(log);
    let writers: Vec<_> = (0..4_u8)
        .map(|writer| {
            let log = Arc::clone(&log);
            task::spawn("writer", move || {
                for round in 0..50_u8 {
                    let sequence = log.append(&[writer, round]).expect("appends");
                    log.commit().expect("commits");
                    assert!(log.durable() >= sequence);
                }
            })
        })
        .collect();
    writers.into_iter().for_each(task::JoinHandle::join);
    drop(log);
    let (found, _) = open(&device, Mode::Ba).expect("opens");
    for writer in 0..4 {
        let rounds: Vec<u8> = found.iter().filter(|r| r.content[0] == writer).map(|r| r.content[1]).collect();
        assert_eq!(rounds, (0..50).collect::<Vec<u8>>());
    }
}

#[test]
fn records_that_gather_without_a_commit_do_not_take_memory_without_end() {
    let (_, log) = log(Mode::Sync);
    for number in 1..=20 {
        log.append(&[0; 1000]).expect("appends");
        assert!(number - log.durable() <= 9, "{number}");
    }
}

#[test]
fn a_place_that_is_none_is_refused() {
    let device = Arc::new(device(Firmware::BaBuffer));
    for (at, pages) in [(5, 0), (5, 1), (60, 5), (u64::MAX, 2), (5, u64::MAX)] {
        let place = Place { at: Lpa(at), pages };
        assert!(matches!(amphi_wal::create(&*device, &place), Err(Error::Place(_))), "{at} {pages}");
    }
    amphi_wal::create(&*device, &PLACE).expect("makes a log");
    let good = options(Mode::Ba);
    for wrong in [
        Options { half_bytes: 0, ..good },
        Options { half_bytes: 4097, ..good },
        Options { window: 1, ..good },
        Options { window: 52 << 10, ..good },
        Options { half_bytes: 1 << 63, ..good },
        Options { entries: [EntryId(1); 2], ..good },
    ] {
        let outcome = Recovery::begin(Arc::clone(&device), PLACE, wrong).map(drop);
        assert!(matches!(outcome, Err(Error::Place(_))), "{wrong:?}: {outcome:?}");
    }
    let other = Place { pages: 9, ..PLACE };
    let outcome = Recovery::begin(Arc::clone(&device), other, good).map(drop);
    assert_eq!(outcome, Err(Error::Pages { found: 10, given: 9 }));
}

#[test]
fn a_device_without_ba_buffer_takes_logs_that_go_by_block() {
    let device = Arc::new(device(Firmware::Log));
    amphi_wal::create(&*device, &PLACE).expect("makes a log");
    assert!(matches!(open(&device, Mode::Ba).map(drop), Err(Error::Device(DeviceError::Unsupported(_)))));
    let (_, log) = open(&device, Mode::Sync).expect("opens");
    log.append(b"by block").expect("appends");
    log.commit().expect("commits");
    drop(log);
    assert_eq!(open(&device, Mode::Async).expect("opens").0[0].content, b"by block");
}

#[test]
fn pins_of_others_are_refused_and_left_alone() {
    for (id, at, pages) in [(1, 7, 1), (3, 4, 2), (9, 14, 2), (3, 30, 1), (1, 0, 16)] {
        let (device, log) = log(Mode::Ba);
        log.append(b"kept").expect("appends");
        log.close().expect("closes");
        device.pin(EntryId(id), 0, Lpa(at), pages * 4096).expect("pins");
        let before = device.entries();
        let outcome = open(&device, Mode::Ba).map(drop);
        assert_eq!(outcome, Err(Error::ForeignEntry(EntryId(id))));
        assert_eq!(device.entries(), before);
        device.flush_entry(EntryId(id)).expect("flushes");
        assert_eq!(open(&device, Mode::Ba).expect("opens").0[0].content, b"kept");
    }
}

#[test]
fn a_full_table_fails_the_commit_and_the_next_one_succeeds() {
    let device = Arc::new(device(Firmware::BaBuffer));
    amphi_wal::create(&*device, &PLACE).expect("makes a log");
    for id in 20..23 {
        device.pin(EntryId(id), 32768 + u64::from(id - 20) * 4096, Lpa(u64::from(id)), 4096).expect("pins");
    }
    let (_, log) = open(&device, Mode::Ba).expect("opens");
    let full = PinError::TableFull { entries: 3 };
    for number in 1..=3 {
        log.append(&record(number, 1000).content).expect("appends");
        assert_eq!(log.commit(), Err(Error::Device(full.into())));
    }
    for id in 20..22 {
        device.flush_entry(EntryId(id)).expect("flushes");
    }
    log.commit().expect("there is a place for each half");
    assert_eq!(log.durable(), 3);
    drop(log);
    let expected: Vec<_> = (1..=3).map(|number| record(number, 1000)).collect();
    assert!(open(&device, Mode::Ba).expect("opens").0 == expected);
}

#[test]
fn an_entry_that_somebody_takes_away_costs_a_commit_and_no_record() {
    let (device, log) = log(Mode::Ba);
    log.append(b"first").expect("appends");
    log.commit().expect("commits");
    device.flush_entry(EntryId(3)).expect("flushes");
    log.append(b"second").expect("appends");
    let refusal = PinError::NoSuchEntry(EntryId(3));
    assert_eq!(log.commit(), Err(Error::Device(refusal.into())));
    log.append(b"third").expect("appends");
    log.commit().expect("commits");
    drop(log);
    let contents: Vec<_> = open(&device, Mode::Ba).expect("opens").0.into_iter().map(|r| r.content).collect();
    assert_eq!(contents, [&b"first"[..], b"second", b"third"]);
}

#[test]
fn a_truncation_that_fails_asks_to_open_the_log_again() {
    let (device, log) = log(Mode::Ba);
    log.append(b"one").expect("appends");
    log.commit().expect("commits");
    device.pin(EntryId(1), 0, PLACE.at, 4096).expect("pins the header behind the log's back");
    assert!(matches!(log.truncate(), Err(Error::Device(DeviceError::Pin(PinError::Pinned { .. })))));
    assert_eq!(log.append(b"two"), Err(Error::OpenAgain));
    assert_eq!(log.commit(), Err(Error::OpenAgain));
    drop(log);
    device.flush_entry(EntryId(1)).expect("flushes");
    assert_eq!(open(&device, Mode::Ba).expect("opens").0.len(), 1);
}

#[test]
fn a_page_that_cannot_be_read_is_an_error_and_not_the_end() {
    let (device, log) = log(Mode::Sync);
    for number in 1..=9 {
        log.append(&record(number, 1000).content).expect("appends");
    }
    log.close().expect("closes");
    assert!(device.spoil(PLACE.at.plus(2)));
    let outcome = open(&device, Mode::Sync).map(drop);
    assert_eq!(outcome, Err(Error::Device(DeviceError::Media(PLACE.at.plus(2)))));
}

/// Bytes of a log with one of them changed, or with random ones behind: opening ends with some of the records
/// or with a typed error, and never with a record that was not appended.
#[test]
fn hostile_bytes_give_a_shorter_log_or_a_typed_error() {
    let (device, log) = log(Mode::Sync);
    let records: Vec<_> = (1..=12).map(|number| record(number, 100 + number as usize * 13)).collect();
    for record in &records {
        log.append(&record.content).expect("appends");
    }
    log.close().expect("closes");
    let origin = Arc::into_inner(device).expect("nobody else has it").forkable().expect("forkable");
    let mut random = amphi_rt::random::Generator::new(1);
    let mut damaged = 0;
    for round in 0..600 {
        let device = Arc::new(origin.fork_device().expect("a fork"));
        let number = round % 2;
        let mut bytes = page(&device, number);
        let below = if number == 0 { 56 } else { 4096 };
        for _ in 0..=random.below(3) {
            bytes[random.below(below) as usize] = random.next() as u8;
        }
        device.write(PLACE.at.plus(number), &bytes, TAG).expect("writes");
        match open(&device, Mode::Ba) {
            Ok((found, _)) => assert!(records.starts_with(&found), "round {round}"),
            Err(Error::Damaged { .. }) => damaged += 1,
            Err(error) => panic!("round {round}: {error}"),
        }
    }
    assert!(damaged > 200, "a changed header is refused: {damaged}");
}

#[test]
fn what_is_not_a_log_or_another_log_is_not_read() {
    let device = Arc::new(device(Firmware::BaBuffer));
    let outcome = open(&device, Mode::Ba).map(drop);
    assert_eq!(outcome, Err(Error::Damaged { what: "the header has no magic number", at: 0 }));
    for _ in 0..2 {
        amphi_wal::create(&*device, &PLACE).expect("makes a log");
        let (found, log) = open(&device, Mode::Ba).expect("opens");
        assert_eq!(found, [], "records of the log that was here are none of the new one");
        log.append(b"old").expect("appends");
        log.close().expect("closes");
    }
    let device = restart(device);
    assert_eq!(open(&device, Mode::Ba).expect("opens").0.len(), 1);
}
