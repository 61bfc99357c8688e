//! The log on the emulated SSD's memory area: what is durable, what a power cut leaves, hostile bytes.

use std::collections::BTreeSet;
use std::sync::Arc;

use amphi_device::{BytePort, BytePortExt, Structure};
use amphi_lsm::Error;
use amphi_lsm::log::{Half, Log, Recovered};
use amphi_rt::{Schedule, Sim, task, time};
use amphi_ssd::{Firmware, Profile, Ssd};
use proptest::prelude::*;

const BYTES: u64 = 4096 + 2 * 8192;
const SALT: u64 = 0x1234_5678_9abc_def0;

/// A small device. Only with a profile that takes time do tasks of a Sim get in each other's way.
fn device(profile: &str) -> Ssd {
    let mut profile = Profile::named(profile).expect("built in");
    (profile.flash.channels, profile.flash.ways, profile.flash.pages_per_block) = (1, 1, 16);
    profile.log.region_bytes = 64 << 10;
    profile.log.txlog_bytes = 4096;
    profile.firmware.kind = Firmware::Memory;
    profile.firmware.memory_bytes = 1 << 20;
    Ssd::in_memory(&profile, 4 << 20)
}

fn log(device: &Arc<Ssd>) -> Log<Ssd> {
    Log::new(Arc::clone(device), 4096, BYTES, SALT).expect("fits").shared_by(2)
}

fn formatted() -> (Arc<Ssd>, Log<Ssd>) {
    formatted_on(device("free"))
}

fn formatted_on(device: Ssd) -> (Arc<Ssd>, Log<Ssd>) {
    let device = Arc::new(device);
    let log = log(&device);
    log.format().expect("formats");
    (device, log)
}

fn entries(log: &Log<Ssd>) -> (Vec<Vec<u8>>, Recovered) {
    let mut found = Vec::new();
    let recovered = log.recover(&mut |content| {
        found.push(content.to_vec());
        Ok(())
    });
    (found, recovered.expect("recovers"))
}

fn restart(device: Arc<Ssd>) -> Arc<Ssd> {
    Arc::new(Arc::into_inner(device).expect("nobody else has it").restart().expect("powers up"))
}

#[test]
fn entries_outlast_a_cut_in_active_and_sealed_files_and_are_forgotten_when_cleared() {
    let (device, log_before) = formatted();
    log_before.activate(Half::First).expect("activates");
    for content in [&b"one"[..], b"", &[7; 5000]] {
        log_before.append(Half::First, content).expect("appends");
    }
    log_before.seal(Half::First).expect("seals");
    log_before.activate(Half::Second).expect("activates");
    log_before.append(Half::Second, b"two").expect("appends");
    drop(log_before);
    device.power_cut(1);
    let device = restart(device);
    let log_after = log(&device);
    let all = [&b"one"[..], b"", &[7; 5000], b"two"].map(<[u8]>::to_vec);
    assert_eq!(entries(&log_after), (all.to_vec(), Recovered { entries: 4, torn: 0 }));
    log_after.reset().expect("resets");
    assert_eq!(entries(&log_after).0, [[0; 0]; 0]);
    let mut bytes = vec![1; BYTES as usize];
    device.load(4096, &mut bytes, Structure::Other).expect("loads");
    assert!(bytes.iter().all(|byte| *byte == 0), "what is used again is zeroed");
}

#[test]
fn a_half_refuses_what_it_has_no_room_for_and_takes_entries_again_once_cleared() {
    let (_device, log) = formatted();
    log.activate(Half::First).expect("activates");
    let full = log.half_bytes() / 64;
    for number in 0..full {
        log.append(Half::First, &number.to_le_bytes()).expect("appends");
    }
    assert!(matches!(log.append(Half::First, &[]), Err(Error::TooLarge { limit: 0, .. })));
    log.seal(Half::First).expect("seals");
    assert_eq!(log.read(Half::First).expect("reads").len() as u64, log.half_bytes());
    log.clear(Half::First).expect("clears");
    assert_eq!(entries(&log).1.entries, 0);
    log.activate(Half::First).expect("activates");
    log.append(Half::First, b"again").expect("appends");
    assert_eq!(entries(&log).0, [b"again"]);
}

#[test]
fn tasks_share_what_loads_and_zeros_the_log() {
    let took = |tasks: usize| {
        Sim::new(1).run(|| {
            let device = Arc::new(device("p4800x-pmr"));
            let log = Log::new(device, 4096, 4096 + 2 * (64 << 10), SALT).expect("fits").shared_by(tasks);
            log.format().expect("formats");
            log.activate(Half::First).expect("activates");
            for number in 0..100u8 {
                log.append(Half::First, &[number; 200]).expect("appends");
            }
            let begun = time::now_ns();
            assert_eq!(entries(&log).1, Recovered { entries: 100, torn: 0 });
            let recovered = time::now_ns();
            log.reset().expect("resets");
            [recovered - begun, time::now_ns() - recovered]
        })
    };
    let (alone, shared) = (took(1), took(4));
    assert!(alone.iter().zip(&shared).all(|(alone, shared)| *alone > 3 * shared), "{alone:?} {shared:?}");
}

/// Three tasks append until the power fails at a command that `seed` chooses; then the log is recovered.
fn cut_while_tasks_append(seed: u64) -> Result<(), String> {
    let (device, log_before, acknowledged) =
        Sim::new(seed).schedule(Schedule::Random { per_mille: 200, delay_ns: 20_000 }).run(|| {
            let (device, log) = formatted_on(device("p4800x-pmr"));
            device.cut_after_commands(seed, seed);
            let activated = log.activate(Half::First).is_ok();
            let log = Arc::new(log);
            let writers: Vec<_> = (0..3u8)
                .map(|writer| {
                    let log = Arc::clone(&log);
                    task::spawn("writer", move || {
                        let contents = (0..10u8).map(|number| vec![writer * 16 + number; 90]);
                        contents
                            .take_while(|content| activated && log.append(Half::First, content).is_ok())
                            .collect::<Vec<_>>()
                    })
                })
                .collect();
            let acknowledged: BTreeSet<_> = writers.into_iter().flat_map(task::JoinHandle::join).collect();
            (device, log, acknowledged)
        });
    drop(log_before);
    if device.has_power() {
        device.power_cut(seed);
    }
    let found: BTreeSet<Vec<u8>> = entries(&log(&restart(device))).0.into_iter().collect();
    if !acknowledged.is_subset(&found) {
        return Err(format!("seed {seed}: an acknowledged entry is lost"));
    }
    let written = |content: &Vec<u8>| {
        content.len() == 90 && content.iter().all(|byte| *byte == content[0]) && content[0] % 16 < 10
    };
    match found.iter().find(|content| !written(content)) {
        Some(strange) => Err(format!("seed {seed}: {strange:?} was never written")),
        None => Ok(()),
    }
}

#[test]
fn tasks_append_beside_each_other_and_every_cut_keeps_what_was_acknowledged_and_nothing_else() {
    for seed in 0..150 {
        cut_while_tasks_append(seed).expect("judged");
    }
}

#[cfg(feature = "planted-bugs")]
#[test]
fn the_cuts_find_planted_bugs() {
    use amphi_lsm::planted::{Bug, plant};
    for bug in [
        Bug::LogNotFlushed,
        Bug::LogNotVerified,
        Bug::TornEntryTaken,
        Bug::ScanStopsAtGap,
        Bug::PieceForgotten,
        Bug::SlotForgotten,
    ] {
        plant(Some(bug));
        let found = (0..600).any(|seed| cut_while_tasks_append(seed).is_err());
        plant(None);
        assert!(found, "{bug:?} is not found");
    }
}

#[test]
fn a_content_that_looks_like_an_entry_is_none() {
    let (device, log_before) = formatted();
    log_before.activate(Half::First).expect("activates");
    // Copies of an entry that exists, at every multiple of 64 B of a content whose own begin is lost.
    log_before.append(Half::First, b"first").expect("appends");
    let mut line = [0; 64];
    device.load(8192, &mut line, Structure::Other).expect("loads");
    let content = [&[0; 56][..], &line.repeat(20)].concat();
    log_before.append(Half::First, &content).expect("appends");
    device.persist(8192 + 64, &[0; 8], None, Structure::Other).expect("stores");
    let (found, recovered) = entries(&log_before);
    assert_eq!((found, recovered.torn), (vec![b"first".to_vec()], 20));
}

#[test]
fn places_that_cannot_be_are_refused() {
    let device = Arc::new(device("free"));
    for (at, bytes) in [(1, BYTES), (0, 8192), (0, 2 << 20), (u64::MAX - 4095, BYTES), (0, 1 << 32)] {
        assert!(matches!(Log::new(Arc::clone(&device), at, bytes, 0), Err(Error::Place(_))), "{at} {bytes}");
    }
}

/// Bytes that hostile logs are made of.
fn patch() -> impl Strategy<Value = (u64, Vec<u8>)> {
    let begin = (0..BYTES / 64, any::<u32>(), any::<bool>()).prop_map(|(line, length, short)| {
        let length = if short { length % 8192 } else { length };
        (line * 64, [b"TxB1", &length.to_le_bytes()[..]].concat())
    });
    let slot = (0..512u64, any::<[u8; 8]>()).prop_map(|(slot, bits)| (slot % 4 * 8, bits.to_vec()));
    let any_bytes = (0..BYTES - 64, prop::collection::vec(any::<u8>(), 1..64));
    prop_oneof![begin, slot, any_bytes]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn hostile_logs_are_recovered_or_refused(patches in prop::collection::vec(patch(), 0..40), active in any::<bool>()) {
        let (device, log) = formatted();
        log.activate(Half::First).expect("activates");
        log.append(Half::First, &[9; 100]).expect("appends");
        if !active {
            log.seal(Half::First).expect("seals");
        }
        for (at, bytes) in patches {
            for (offset, byte) in bytes.iter().enumerate() {
                device.persist(4096 + at + offset as u64, &[*byte], None, Structure::Other).expect("stores");
            }
        }
        let outcome = log.recover(&mut |_| Ok(()));
        prop_assert!(matches!(outcome, Ok(_) | Err(Error::Damaged { .. })), "{:?}", outcome);
        let outcome = log.reset();
        prop_assert!(matches!(outcome, Ok(()) | Err(Error::Damaged { .. })), "{:?}", outcome);
    }
}
