//! The memory-area firmware as a host meets it: two address spaces that never meet, what it promises, what
//! survives, what is torn.

use std::path::Path;
use std::sync::Arc;

use amphi_device::{
    BlockPort, ByteDurability, BytePort, BytePortExt, Device, Error, Lpa, MemoryArea, MemoryPromise,
    PageView, Structure, TxId, WriteLog,
};
use amphi_ssd::{ByteDurabilityName, Firmware, OpenOptions, Profile, Ssd};

const TAG: Structure = Structure::Journal;
const MEMORY: u64 = 1 << 20;

fn profile() -> Profile {
    let mut profile = Profile::named("free").expect("built in");
    (profile.flash.channels, profile.flash.ways, profile.flash.pages_per_block) = (1, 1, 16);
    profile.log.region_bytes = 64 << 10;
    profile.log.txlog_bytes = 4096;
    profile.firmware.kind = Firmware::Memory;
    profile.firmware.memory_bytes = MEMORY;
    profile
}

fn device() -> Ssd {
    Ssd::in_memory(&profile(), 4 << 20)
}

fn load(ssd: &Ssd, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xee; len];
    ssd.load(at, &mut bytes, TAG).expect("loads");
    bytes
}

fn read(ssd: &Ssd, page: u64) -> Vec<u8> {
    let mut bytes = vec![0xee; 4096];
    ssd.read(Lpa(page), &mut bytes, TAG).expect("reads");
    bytes
}

#[test]
fn bytes_and_blocks_are_two_address_spaces() {
    let ssd = device();
    assert_eq!((ssd.capacity_pages(), ssd.bytes()), (1024, MEMORY));
    ssd.persist(0, &[7; 64], None, TAG).expect("stores");
    ssd.persist(MEMORY - 64, &[8; 64], None, TAG).expect("stores up to the end");
    assert_eq!(read(&ssd, 0), [0; 4096], "a store is no block");
    ssd.write(Lpa(0), &[9; 4096], TAG).expect("writes");
    ssd.write(Lpa(1023), &[9; 4096], TAG).expect("writes beyond the window's size");
    assert_eq!(load(&ssd, 0, 65), [&[7; 64][..], &[0]].concat(), "a block is no byte");
    ssd.trim(Lpa(0), 1024).expect("trims");
    assert_eq!((read(&ssd, 0), load(&ssd, MEMORY - 64, 64)), (vec![0; 4096], vec![8; 64]));
    let past = |outcome| matches!(outcome, Err(Error::OutOfRange { bytes: MEMORY, .. }));
    assert!(past(ssd.store(MEMORY - 8, &[0; 9], None, TAG)));
    assert!(past(ssd.load(MEMORY, &mut [0], TAG)));
    assert!(past(ssd.load(u64::MAX, &mut [0; 2], TAG)));
    assert!(matches!(ssd.store(4090, &[0; 8], None, TAG), Err(Error::Misaligned { .. })));
}

#[test]
fn it_says_what_it_promises_and_refuses_the_rest() {
    let ssd = device();
    let promise =
        MemoryPromise { bytes: MEMORY, store_atomic_bytes: 8, durability: ByteDurability::VerifyRead };
    assert_eq!(ssd.memory(), Ok(promise));
    assert!(!ssd.contract().transactions);
    let tx = TxId::new(1).expect("not zero");
    let refusals = [
        ssd.check_page_view(),
        ssd.store(0, &[1], Some(tx), TAG),
        ssd.commit(tx),
        ssd.recover().map(drop),
        ssd.clean_log(),
    ];
    for refusal in refusals {
        let Err(refusal @ Error::Unsupported(_)) = refusal else { panic!("{refusal:?}") };
        assert!(refusal.to_string().contains("area of its own"), "{refusal}");
    }
    for other in [Firmware::Log, Firmware::PageCache] {
        let mut profile = profile();
        profile.firmware.kind = other;
        let ssd = Ssd::in_memory(&profile, 4 << 20);
        assert!(matches!(ssd.memory(), Err(Error::Unsupported(_))));
        assert_eq!((ssd.check_page_view(), ssd.bytes()), (Ok(()), 4 << 20));
    }
    let mut volatile = profile();
    volatile.persistence.block_durability = amphi_ssd::BlockDurabilityName::Flush;
    assert!(volatile.check().is_err_and(|error| error.to_string().contains("block_durability")));
}

#[test]
fn its_traffic_and_its_use_are_counted() {
    let ssd = device();
    assert_eq!(
        (ssd.info().firmware, ssd.info().memory_bytes, ssd.info().cache_bytes),
        (Firmware::Memory, MEMORY, 0)
    );
    ssd.persist(300 << 10, &[1; 100], None, TAG).expect("stores");
    load(&ssd, 0, 50);
    ssd.write(Lpa(0), &[1; 4096], Structure::Data).expect("writes");
    read(&ssd, 0);
    let stats = ssd.stats();
    assert_eq!((stats.byte_write.bytes(), stats.byte_read.bytes()), (100, 50));
    assert_eq!((stats.block_write.bytes(), stats.block_read.bytes()), (4096, 4096));
    assert_eq!((stats.memory_used, stats.memory_capacity), (256 << 10, MEMORY), "one chunk");
    assert_eq!((stats.cache_hits, stats.cache_misses, stats.log_entries), (0, 0, 0));
    assert_eq!(stats.flash_bytes_written, 4096, "the block side goes straight to flash");
}

#[test]
fn what_is_durable_outlasts_close_cut_and_trim() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("ssd.img");
    Ssd::create(&path, &profile(), 4 << 20).expect("creates");
    let expect = |ssd: &Ssd, value: u8| {
        assert_eq!(load(ssd, 4096 - 3, 3), [value; 3]);
        assert_eq!(load(ssd, 4096, 3), [value; 3]);
        assert_eq!(read(ssd, 1), [value; 4096]);
    };
    let put = |ssd: &Ssd, value: u8| {
        ssd.store(4096 - 3, &[value; 3], None, TAG).expect("stores");
        ssd.persist(4096, &[value; 3], None, TAG).expect("stores");
        ssd.flush_lines(4096 - 3, 3);
        ssd.fence();
        ssd.verify_read().expect("arrives");
        ssd.write(Lpa(1), &[value; 4096], TAG).expect("writes");
    };
    put(&Ssd::open(&path, &OpenOptions::default()).expect("opens"), 1);
    let ssd = Ssd::open(&path, &OpenOptions::default()).expect("opens again");
    expect(&ssd, 1);
    put(&ssd, 2);
    ssd.power_cut(3);
    assert_eq!(ssd.load(0, &mut [0], TAG), Err(Error::PowerLost));
    drop(ssd);
    let (info, stats) = Ssd::inspect(&path).expect("whole");
    assert_eq!(stats.memory_used, 256 << 10, "told without power");
    assert_eq!((info.firmware, info.memory_bytes, stats.memory_capacity), (Firmware::Memory, MEMORY, MEMORY));
    let ssd = Ssd::open(&path, &OpenOptions::default()).expect("opens after the cut");
    expect(&ssd, 2);
    put(&ssd, 3);
    ssd.host_crash(1);
    let ssd = ssd.restart().expect("powers up");
    expect(&ssd, 3);
}

/// Old and new bytes of a line, in 8 B units: which are new. Nothing else may be found.
fn torn_units(found: &[u8], unit: usize, new: u8) -> u64 {
    let mut arrived = 0;
    for (number, bytes) in found.chunks(unit).enumerate() {
        assert!(bytes.iter().all(|&byte| byte == bytes[0]), "{unit} B are torn: {bytes:?}");
        assert!([0, new].contains(&bytes[0]), "{bytes:?} was never stored");
        arrived |= u64::from(bytes[0] == new) << number;
    }
    arrived
}

#[test]
fn a_cut_tears_a_store_into_its_atomic_units_and_into_nothing_smaller() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..600 {
        let ssd = device();
        // Bytes 0..24 and 40..64 are never stored to.
        ssd.store(24, &[5; 16], None, TAG).expect("stores");
        match seed % 3 {
            0 => {}
            1 => ssd.flush_lines(24, 16),
            _ => {
                ssd.flush_lines(24, 16);
                ssd.fence();
            }
        }
        ssd.power_cut(seed);
        let ssd = ssd.restart().expect("powers up");
        seen.insert((seed % 3, torn_units(&load(&ssd, 0, 64), 8, 5)));
    }
    // Dirty, flushed or posted: nothing, either unit, or both.
    let allowed = [0, 1 << 3, 1 << 4, 3 << 3];
    let all: Vec<_> = (0..3).flat_map(|stage| allowed.map(|units| (stage, units))).collect();
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), all);
}

#[test]
fn what_the_contract_protects_is_never_torn() {
    for seed in 0..200 {
        let mut fenced = profile();
        fenced.persistence.byte_durability = ByteDurabilityName::Fence;
        let by_fence = Ssd::in_memory(&fenced, 4 << 20);
        by_fence.store(0, &[5; 64], None, TAG).expect("stores");
        by_fence.flush_lines(0, 64);
        by_fence.fence();
        let verified = device();
        verified.persist(0, &[5; 64], None, TAG).expect("stores");
        for ssd in [by_fence, verified] {
            ssd.power_cut(seed);
            let ssd = ssd.restart().expect("powers up");
            assert_eq!(load(&ssd, 0, 128), [[5; 64], [0; 64]].concat(), "seed {seed}");
        }
        let posted = device();
        posted.store(0, &[5; 64], None, TAG).expect("stores");
        posted.flush_lines(0, 64);
        posted.fence();
        posted.host_crash(seed);
        let ssd = posted.restart().expect("powers up");
        assert_eq!(load(&ssd, 0, 64), [5; 64], "seed {seed}: the link delivers what is posted");
    }
}

#[test]
fn what_arrives_is_the_seeds_and_not_a_matter_of_earlier_tasks() {
    let torn = || {
        let ssd = device();
        ssd.store(0, &[5; 4096], None, TAG).expect("stores");
        ssd.power_cut(7);
        load(&ssd.restart().expect("powers up"), 0, 4096)
    };
    let here = torn();
    assert!(here.contains(&0) && here.contains(&5), "some of it arrived");
    for task in 0..3 {
        let there = amphi_rt::task::spawn("stores", torn).join();
        assert!(there == here, "task {task} finds something else");
    }
}

#[test]
fn a_block_write_in_flight_is_torn_by_sectors_and_the_memory_stays() {
    let mut seen = std::collections::BTreeSet::new();
    let mut profile = profile();
    profile.persistence.block_atomic_bytes = 512;
    for seed in 0..400 {
        let ssd = Ssd::in_memory(&profile, 4 << 20);
        ssd.persist(4096, &[3; 4096], None, TAG).expect("stores");
        ssd.cut_after_steps(seed % 4, seed);
        let outcome = ssd.write(Lpa(1), &[6; 4096], TAG);
        let ssd = if ssd.has_power() { ssd } else { ssd.restart().expect("powers up") };
        let sectors = torn_units(&read(&ssd, 1), 512, 6);
        assert!(outcome.is_err() || sectors == 0xff, "seed {seed}: a completed write is durable");
        seen.insert(sectors);
        assert_eq!(load(&ssd, 4096, 4096), [3; 4096]);
    }
    assert!(seen.contains(&0) && seen.contains(&0xff) && seen.len() > 50, "{} states", seen.len());
}

#[test]
fn forks_have_what_the_device_has_and_what_arrives_is_told() {
    let ssd = device();
    ssd.persist(8, &[1; 8], None, TAG).expect("stores");
    ssd.store(16, &[2; 8], None, TAG).expect("stores");
    let staged = ssd.fork().expect("a fork with what is staged");
    assert_eq!(load(&staged, 0, 32), [[0; 8], [1; 8], [2; 8], [0; 8]].concat());
    let origin = ssd.forkable().expect("forkable");
    let (one, other) = (origin.fork_device().expect("a fork"), origin.fork_device().expect("a fork"));
    assert_eq!(load(&one, 0, 32), [[0; 8], [1; 8], [0; 8], [0; 8]].concat());
    assert_eq!(one.contents(&[]), other.contents(&[]));
    assert!(one.arrive(24, &[4; 8], None, TAG));
    assert!(one.arrive_in_page(Lpa(2), &[(512, &[5; 512]), (2048, &[6; 512])]));
    let one = one.restart().expect("powers up");
    assert_eq!(load(&one, 16, 16), [[0; 8], [4; 8]].concat());
    let page = read(&one, 2);
    assert_eq!((page[511], page[512], page[1023], page[1024], page[2048]), (0, 5, 5, 0, 6));
    assert_ne!(one.contents(&[Lpa(2)]), other.contents(&[Lpa(2)]), "the area is part of the contents");
    other.persist(24, &[4; 8], None, TAG).expect("stores");
    assert_eq!(one.contents(&[Lpa(2)]), other.contents(&[Lpa(2)]));
}

#[test]
fn tasks_that_store_into_one_word_do_not_undo_each_other() {
    let ssd = Arc::new(device());
    let tasks: Vec<_> = (0..4_u64)
        .map(|task| {
            let ssd = Arc::clone(&ssd);
            amphi_rt::task::spawn("host", move || {
                for round in 0..20_000_u64 {
                    let value = [round as u8, (round >> 8) as u8];
                    ssd.persist(64 + task * 2, &value, None, TAG).expect("stores");
                    assert_eq!(load(&ssd, 64 + task * 2, 2), value, "task {task} round {round}");
                }
            })
        })
        .collect();
    for task in tasks {
        task.join();
    }
}

/// The child of [`a_killed_process_leaves_the_memory_it_had`]: stores for ever, saying on its standard output
/// what is durable.
fn store_until_killed(path: &Path) {
    use std::io::Write;
    let ssd = Ssd::open(path, &OpenOptions::default()).expect("opens");
    let mut out = std::io::stdout();
    for round in 1_u64.. {
        // The same value in two lines, one after the other.
        for at in [0, MEMORY / 2] {
            ssd.persist(at + round % 64 * 64, &round.to_le_bytes(), None, TAG).expect("stores");
        }
        writeln!(out, "@{round}").expect("the parent listens");
        out.flush().expect("the parent listens");
    }
}

#[test]
fn a_killed_process_leaves_the_memory_it_had() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    if let Ok(path) = std::env::var("AMPHI_STORE_UNTIL_KILLED") {
        store_until_killed(Path::new(&path));
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    for kill in 0..8_u64 {
        let path = dir.path().join(format!("{kill}.img"));
        Ssd::create(&path, &profile(), 1 << 20).expect("creates");
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["memory::a_killed_process_leaves_the_memory_it_had", "--exact", "--nocapture"])
            .env("AMPHI_STORE_UNTIL_KILLED", &path)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the child starts");
        let mut acknowledged = 0_u64;
        for line in BufReader::new(child.stdout.as_mut().expect("piped")).lines() {
            if let Some((_, number)) = line.expect("text").rsplit_once('@') {
                acknowledged = number.parse().expect("a round");
                if acknowledged > 50 + kill * 137 {
                    break;
                }
            }
        }
        assert!(acknowledged > 50 + kill * 137, "the child was not killed, but ended after {acknowledged}");
        child.kill().expect("killed");
        child.wait().expect("reaped");
        let ssd = Ssd::open(&path, &OpenOptions::default()).expect("a whole device");
        let value = |at: u64, slot: u64| {
            u64::from_le_bytes(load(&ssd, at + slot * 64, 8).try_into().expect("8 bytes"))
        };
        for slot in 0..64 {
            let (first, second) = (value(0, slot), value(MEMORY / 2, slot));
            assert!(first >= second, "kill {kill}: the second line is newer");
            let due = acknowledged.saturating_sub((acknowledged + 64 - slot) % 64);
            assert!(second >= due, "kill {kill}: store {due} is lost, {second} is there");
        }
    }
}

/// `golden/ssd-v2-memory.img` was written by the first program that had this firmware.
#[test]
fn the_golden_image_stays_readable() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/ssd-v2-memory.img");
    if std::env::var("AMPHI_WRITE_GOLDEN").is_ok() {
        write_golden(&golden);
    }
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("golden.img");
    std::fs::copy(&golden, &path).expect("copied");
    let ssd = Ssd::open(&path, &OpenOptions::default()).expect("opens");
    assert_eq!(
        (ssd.info().firmware, ssd.bytes(), ssd.info().format_version),
        (Firmware::Memory, 512 << 10, 2)
    );
    assert_eq!(ssd.stats().memory_used, 512 << 10, "both chunks");
    let mut expected = vec![0; 512 << 10];
    expected[10..30].fill(0xaa);
    expected[(512 << 10) - 64..].fill(0xbb);
    assert!(load(&ssd, 0, 512 << 10) == expected);
    for page in 0..8_u64 {
        let value = if page == 5 { 0 } else { page as u8 + 1 };
        assert!(read(&ssd, page) == [value; 4096], "page {page}");
    }
}

fn write_golden(path: &Path) {
    let mut profile = profile();
    profile.name = "golden".to_owned();
    profile.flash.pages_per_block = 4;
    profile.log.partition_bytes = 64 << 10;
    profile.firmware.memory_bytes = 512 << 10;
    Ssd::create(path, &profile, 128 << 10).expect("creates");
    let ssd = Ssd::open(path, &OpenOptions::default()).expect("opens");
    for page in 0..8_u64 {
        ssd.write(Lpa(page), &[page as u8 + 1; 4096], TAG).expect("writes");
    }
    ssd.persist(10, &[0xaa; 20], None, TAG).expect("stores");
    ssd.persist((512 << 10) - 64, &[0xbb; 64], None, TAG).expect("stores");
    ssd.trim(Lpa(5), 1).expect("trims");
}
