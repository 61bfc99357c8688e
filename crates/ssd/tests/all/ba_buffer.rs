//! The BA-buffer firmware as a host meets it: its commands and what they refuse, the LBA checker on both
//! sides of each boundary, what is dumped and restored, and what the image keeps.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use amphi_device::{
    BaBuffer, BaPromise, BlockPort, BytePort, BytePortExt, Completion, Device, Entry, EntryId, Error, Lpa,
    MemoryArea, PageView, PinError, Structure, TxId, WriteLog,
};
use amphi_ssd::{Firmware, ImageError, OpenOptions, Profile, Ssd};

const TAG: Structure = Structure::Journal;
const PAGE: u64 = 4096;
const WINDOW: u64 = 64 << 10;
const A: EntryId = EntryId(7);
const B: EntryId = EntryId(1);

fn profile() -> Profile {
    let mut profile = Profile::named("free").expect("built in");
    (profile.flash.channels, profile.flash.ways, profile.flash.pages_per_block) = (1, 1, 16);
    profile.log.region_bytes = 64 << 10;
    profile.log.txlog_bytes = 4096;
    profile.link.dma_read_ns = 1;
    profile.firmware.kind = Firmware::BaBuffer;
    (profile.ba_buffer.bytes, profile.ba_buffer.entries) = (WINDOW, 3);
    profile
}

/// A device whose page n holds the byte n + 1.
fn device() -> Ssd {
    let ssd = Ssd::in_memory(&profile(), 64 * PAGE);
    for page in 0..64 {
        ssd.write(Lpa(page), &[page as u8 + 1; PAGE as usize], TAG).expect("writes");
    }
    ssd
}

fn load(ssd: &Ssd, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xee; len];
    ssd.load(at, &mut bytes, TAG).expect("loads");
    bytes
}

fn read(ssd: &Ssd, page: u64) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0xee; PAGE as usize];
    ssd.read(Lpa(page), &mut bytes, TAG).map(|()| bytes)
}

fn entry(id: EntryId, offset: u64, at: u64, pages: u64) -> Entry {
    Entry { id, offset, at: Lpa(at), pages }
}

#[test]
fn pages_that_are_pinned_are_loaded_changed_by_bytes_and_flushed() {
    let ssd = device();
    assert_eq!(ssd.ba_buffer(), Ok(BaPromise { bytes: WINDOW, entries: 3 }));
    assert_eq!((ssd.bytes(), ssd.capacity_pages()), (WINDOW, 64));
    ssd.pin(A, 2 * PAGE, Lpa(10), 3 * PAGE).expect("pins");
    assert_eq!(ssd.entry_info(A), Ok(entry(A, 2 * PAGE, 10, 3)));
    assert_eq!(ssd.entries(), Ok(vec![entry(A, 2 * PAGE, 10, 3)]));
    for page in 0..3 {
        assert_eq!(load(&ssd, (2 + page) * PAGE, PAGE as usize), [page as u8 + 11; PAGE as usize]);
    }
    ssd.store(2 * PAGE + 100, b"begin", None, TAG).expect("stores");
    ssd.store(5 * PAGE - 3, b"end", None, TAG).expect("stores");
    ssd.sync_entry(A).expect("syncs");
    let mut copied = vec![0; 3 * PAGE as usize];
    ssd.read_dma(A, &mut copied, TAG).expect("reads");
    assert_eq!(
        (&copied[99..106], &copied[3 * PAGE as usize - 4..]),
        (&b"\x0bbegin\x0b"[..], &b"\x0dend"[..])
    );
    let before = ssd.stats().flash_host.pages_written;
    ssd.flush_entry(A).expect("flushes");
    assert_eq!(ssd.stats().flash_host.pages_written - before, 3, "the whole entry, whatever is dirty");
    assert_eq!(ssd.entry_info(A), Err(PinError::NoSuchEntry(A).into()));
    let pages: Vec<u8> = (10..13).flat_map(|page| read(&ssd, page).expect("reads")).collect();
    assert!(pages == copied, "the pages hold what the window had");
    assert!(load(&ssd, 2 * PAGE, 3 * PAGE as usize) == copied, "the window keeps it");
    let stats = ssd.stats();
    assert_eq!((stats.pins, stats.entry_flushes, stats.entry_syncs), (1, 1, 1));
    assert_eq!((stats.pinned_entries, stats.pin_capacity, stats.memory_capacity), (0, 3, WINDOW));
}

#[test]
fn what_a_pin_cannot_have_is_refused_by_its_reason() {
    let ssd = device();
    ssd.pin(A, 4 * PAGE, Lpa(10), 2 * PAGE).expect("pins");
    let refusal = |id, offset, at, bytes| ssd.pin(id, offset, Lpa(at), bytes).expect_err("refused");
    let misaligned = |refusal| matches!(refusal, Error::Misaligned { .. });
    let outside = |refusal| matches!(refusal, Error::OutOfRange { .. });
    assert!(misaligned(refusal(B, 1, 0, PAGE)));
    assert!(misaligned(refusal(B, 0, 0, PAGE + 1)));
    assert!(misaligned(refusal(B, 0, 0, 0)));
    assert!(outside(refusal(B, WINDOW - PAGE, 0, 2 * PAGE)));
    assert!(outside(refusal(B, 0, 63, 2 * PAGE)));
    assert!(outside(refusal(B, 0, u64::MAX, PAGE)));
    assert!(outside(refusal(B, 0u64.wrapping_sub(PAGE), 0, PAGE)));
    let too_long = PinError::TooLong { what: "pin", bytes: WINDOW + PAGE, most: WINDOW };
    assert_eq!(refusal(B, 0, 0, WINDOW + PAGE), too_long.into());
    assert_eq!(refusal(A, 0, 0, PAGE), PinError::EntryInUse(A).into());
    // One page on each side of the pinned ones is free, and none of them.
    for (at, pages) in [(9, 2), (10, 1), (11, 1), (11, 2), (8, 6)] {
        assert_eq!(refusal(B, 8 * PAGE, at, pages * PAGE), PinError::PagesOverlap(A).into(), "{at} {pages}");
    }
    for (offset, pages) in [(3, 2), (4, 1), (5, 1), (5, 2), (0, 16)] {
        assert_eq!(refusal(B, offset * PAGE, 40, pages * PAGE), PinError::WindowOverlap(A).into());
    }
    ssd.pin(B, 2 * PAGE, Lpa(8), 2 * PAGE).expect("just before");
    ssd.pin(EntryId(2), 6 * PAGE, Lpa(12), 2 * PAGE).expect("just after");
    assert_eq!(refusal(EntryId(3), 0, 0, PAGE), PinError::TableFull { entries: 3 }.into());
    for outcome in [
        ssd.flush_entry(EntryId(9)),
        ssd.sync_entry(EntryId(9)),
        ssd.entry_info(EntryId(9)).map(drop),
        ssd.read_dma(EntryId(9), &mut [0], TAG),
    ] {
        assert_eq!(outcome, Err(PinError::NoSuchEntry(EntryId(9)).into()));
    }
    let mut long = vec![0; 2 * PAGE as usize + 1];
    let bytes = long.len() as u64;
    let too_long = PinError::TooLong { what: "DMA read of an entry", bytes, most: 2 * PAGE };
    assert_eq!(ssd.read_dma(A, &mut long, TAG), Err(too_long.into()));
    assert_eq!(ssd.stats().pins, 3, "what is refused has no effect");
}

#[test]
fn it_refuses_what_other_firmware_does_and_others_refuse_pins() {
    let ssd = device();
    let tx = TxId::new(1).expect("not zero");
    let refusals = [
        ssd.memory().map(drop),
        ssd.check_page_view(),
        ssd.store(0, &[1], Some(tx), TAG),
        ssd.commit(tx),
        ssd.recover().map(drop),
        ssd.clean_log(),
    ];
    for refusal in refusals {
        let Err(refusal @ Error::Unsupported(_)) = refusal else { panic!("{refusal:?}") };
        assert!(refusal.to_string().contains("BA-buffer"), "{refusal}");
    }
    for other in [Firmware::Log, Firmware::PageCache, Firmware::Memory] {
        let mut profile = profile();
        profile.firmware.kind = other;
        let ssd = Ssd::in_memory(&profile, 64 * PAGE);
        assert!(matches!(ssd.ba_buffer(), Err(Error::Unsupported(_))));
        assert!(matches!(ssd.pin(A, 0, Lpa(0), PAGE), Err(Error::Unsupported(_))));
        assert!(matches!(ssd.entries(), Err(Error::Unsupported(_))));
    }
}

/// Every range of up to four pages around an entry: refused exactly if it has one of its pages, and then
/// without effect.
#[test]
fn the_checker_gates_every_page_of_an_entry_and_none_beside_it() {
    let ssd = device();
    ssd.pin(A, 0, Lpa(20), 3 * PAGE).expect("pins");
    let mut gated = 0;
    for first in 15..28 {
        for pages in 1..5_u64 {
            let pinned = (first..first + pages).find(|page| (20..23).contains(page));
            let refusal = pinned.map(|page| Error::from(PinError::Pinned { page: Lpa(page), entry: A }));
            let mut bytes = vec![0; (pages * PAGE) as usize];
            let reads = ssd.read(Lpa(first), &mut bytes, TAG);
            assert_eq!(reads.err(), refusal, "read of {pages} from {first}");
            let expected: Vec<u8> =
                (first..first + pages).flat_map(|page| [page as u8 + 1; PAGE as usize]).collect();
            assert_eq!(ssd.write(Lpa(first), &expected, TAG).err(), refusal, "write of {pages} from {first}");
            if refusal.is_some() {
                assert_eq!(ssd.trim(Lpa(first), pages).err(), refusal, "trim of {pages} from {first}");
                gated += 3;
            }
        }
    }
    assert_eq!(ssd.stats().block_commands_gated, gated);
    ssd.flush_entry(A).expect("flushes");
    for page in 15..28 {
        assert_eq!(read(&ssd, page), Ok(vec![page as u8 + 1; PAGE as usize]), "page {page}");
    }
}

#[test]
fn a_block_command_under_way_when_its_page_is_pinned_is_refused() {
    let ssd = device();
    let data = [0x77; PAGE as usize];
    let bufs = [&data[..]];
    let mut into = vec![0; PAGE as usize];
    let write = ssd.submit_write(Lpa(30), &bufs, TAG).expect("submitted");
    let read_before = ssd.submit_read(Lpa(31), &mut into, TAG).expect("submitted");
    ssd.pin(A, 0, Lpa(30), 2 * PAGE).expect("pins");
    let pinned = |page| Err(PinError::Pinned { page: Lpa(page), entry: A }.into());
    assert_eq!((write.wait(), read_before.wait()), (pinned(30), pinned(31)));
    ssd.flush_entry(A).expect("flushes");
    assert_eq!(read(&ssd, 30), Ok(vec![31; PAGE as usize]), "the write had no effect");
}

#[test]
fn a_refusal_names_the_first_pinned_page() {
    let ssd = device();
    ssd.pin(A, 0, Lpa(30), PAGE).expect("pins");
    ssd.pin(B, PAGE, Lpa(20), 2 * PAGE).expect("pins");
    let refusal = |page, entry| Err(PinError::Pinned { page: Lpa(page), entry }.into());
    assert_eq!(ssd.trim(Lpa(0), 64), refusal(20, B));
    assert_eq!(ssd.trim(Lpa(21), 20), refusal(21, B));
    assert_eq!(ssd.trim(Lpa(22), 20), refusal(30, A));
}

/// Two tasks count in the same page, one by bytes while it pins the page, the other by block while it does
/// not: neither path ever sees an older count than the other had written.
#[test]
fn two_tasks_on_both_paths_never_disagree() {
    let ssd = Arc::new(device());
    ssd.write(Lpa(5), &[0; PAGE as usize], TAG).expect("writes");
    let newest = Arc::new(AtomicU64::new(0));
    let first_of = |page: &[u8]| u64::from_le_bytes(page[..8].try_into().expect("8 bytes"));
    let by_block = {
        let (ssd, newest) = (Arc::clone(&ssd), Arc::clone(&newest));
        amphi_rt::task::spawn("by block", move || {
            let (mut reads, mut page) = (0, vec![0; PAGE as usize]);
            while newest.load(Ordering::Acquire) < 2_000 || reads == 0 {
                let before = newest.load(Ordering::Acquire);
                match ssd.read(Lpa(5), &mut page, TAG) {
                    Ok(()) => {
                        reads += 1;
                        assert!(first_of(&page) >= before, "{} after {before}", first_of(&page));
                    }
                    Err(refusal) => {
                        assert_eq!(refusal, PinError::Pinned { page: Lpa(5), entry: A }.into());
                    }
                }
            }
        })
    };
    for count in 1..=2_000_u64 {
        ssd.pin(A, 0, Lpa(5), PAGE).expect("pins");
        assert_eq!(first_of(&load(&ssd, 0, 8)), count - 1);
        ssd.store(0, &count.to_le_bytes(), None, TAG).expect("stores");
        ssd.sync_entry(A).expect("syncs");
        ssd.flush_entry(A).expect("flushes");
        newest.store(count, Ordering::Release);
    }
    by_block.join();
}

#[test]
fn buffers_of_64_bytes_drain_in_any_order_until_they_are_synced() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..400 {
        let ssd = device();
        ssd.pin(A, 0, Lpa(0), PAGE).expect("pins");
        for line in 0..3 {
            ssd.store(line * 64, &[0xcc; 64], None, TAG).expect("stores");
        }
        if seed % 2 == 0 {
            ssd.sync_entry(A).expect("syncs");
        }
        ssd.power_cut(seed);
        let ssd = ssd.restart().expect("powers up");
        assert_eq!(ssd.entries(), Ok(vec![entry(A, 0, 0, 1)]));
        let bytes = load(&ssd, 0, 256);
        assert_eq!(bytes[192..], [1; 64]);
        let arrived = [0, 1, 2].map(|line| match &bytes[line * 64..line * 64 + 64] {
            bytes if *bytes == [0xcc; 64] => 'y',
            bytes if *bytes == [1; 64] => 'n',
            bytes => {
                assert!(
                    bytes.chunks(8).all(|unit| [[1; 8], [0xcc; 8]].contains(unit.try_into().expect("8")))
                );
                't'
            }
        });
        if seed % 2 == 0 {
            assert_eq!(arrived, ['y'; 3], "seed {seed}: synced");
        }
        seen.insert(arrived);
    }
    for order in [['n', 'n', 'y'], ['n', 'y', 'n'], ['y', 'n', 'n'], ['n', 'n', 'n'], ['t', 't', 't']] {
        assert!(seen.contains(&order), "{order:?} is never seen: {seen:?}");
    }
}

#[test]
fn a_page_that_cannot_be_read_is_not_pinned() {
    let ssd = device();
    assert!(ssd.spoil(Lpa(11)));
    assert_eq!(ssd.pin(A, 0, Lpa(10), 3 * PAGE), Err(Error::Media(Lpa(11))));
    assert_eq!(ssd.entries(), Ok(Vec::new()));
    ssd.write(Lpa(11), &[5; PAGE as usize], TAG).expect("nothing gates it");
    ssd.pin(A, 0, Lpa(10), 3 * PAGE).expect("pins");
}

fn dumped_device() -> Ssd {
    let ssd = device();
    ssd.pin(A, 0, Lpa(10), 2 * PAGE).expect("pins");
    ssd.pin(B, WINDOW - PAGE, Lpa(40), PAGE).expect("pins");
    ssd.persist(100, b"first", None, TAG).expect("stores");
    ssd.persist(WINDOW - 4, b"last", None, TAG).expect("stores");
    ssd.persist(5 * PAGE, b"no page", None, TAG).expect("stores where nothing is pinned");
    ssd
}

fn check_dumped(ssd: &Ssd) {
    assert_eq!(ssd.entries(), Ok(vec![entry(A, 0, 10, 2), entry(B, WINDOW - PAGE, 40, 1)]));
    assert_eq!(load(ssd, 99, 7), b"\x0bfirst\x0b");
    assert_eq!(load(ssd, WINDOW - 5, 5), b"\x29last");
    assert_eq!(load(ssd, 5 * PAGE, 7), b"no page");
    assert_eq!(read(ssd, 10), Err(PinError::Pinned { page: Lpa(10), entry: A }.into()));
    assert_eq!(read(ssd, 12), Ok(vec![13; PAGE as usize]));
}

#[test]
fn a_power_loss_dumps_buffer_and_table_and_power_up_restores_them() {
    let ssd = dumped_device();
    ssd.host_crash(1);
    let ssd = ssd.restart().expect("powers up");
    check_dumped(&ssd);
    assert_eq!(ssd.stats().dumps, 0, "the device had power");
    ssd.power_cut(2);
    ssd.settle();
    assert_eq!((ssd.stats().dumps, ssd.stats().restores), (1, 0));
    let ssd = ssd.restart().expect("powers up");
    check_dumped(&ssd);
    assert_eq!((ssd.stats().dumps, ssd.stats().restores), (1, 1));
}

/// The process that emulates the dump may be killed at any step of it, and the device lose power at any step
/// of a restore.
#[test]
fn a_dump_and_a_restore_may_end_at_any_step() {
    let mut steps = 0;
    loop {
        let ssd = dumped_device();
        ssd.kill_in_dump(steps).expect("it makes dumps");
        ssd.power_cut(steps);
        let ssd = ssd.restart().expect("powers up");
        check_dumped(&ssd);
        if ssd.stats().dumps == 1 && steps > 20 {
            break;
        }
        steps += 1;
    }
    assert!(steps >= WINDOW / PAGE, "only {steps} steps");
    for steps in 0.. {
        let ssd = dumped_device();
        ssd.power_cut(1);
        let ssd = ssd.restart_and_cut(steps, 2).expect("powers up");
        let whole = ssd.has_power();
        ssd.power_cut(3);
        let ssd = ssd.restart_and_cut(steps / 2, 2).expect("powers up");
        ssd.power_cut(3);
        let ssd = ssd.restart().expect("powers up");
        check_dumped(&ssd);
        if whole {
            assert!(steps >= WINDOW / PAGE, "only {steps} steps");
            break;
        }
    }
}

#[test]
fn the_image_keeps_pins_over_close_and_power_loss() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("ssd.img");
    Ssd::create(&path, &profile(), 64 * PAGE).expect("creates");
    let open = || Ssd::open(&path, &OpenOptions::default()).expect("opens");
    let ssd = open();
    ssd.write(Lpa(3), &[9; PAGE as usize], TAG).expect("writes");
    ssd.pin(A, PAGE, Lpa(3), PAGE).expect("pins");
    ssd.persist(PAGE, b"kept", None, TAG).expect("stores");
    drop(ssd);
    for round in 0..3 {
        let ssd = open();
        assert_eq!(ssd.entries(), Ok(vec![entry(A, PAGE, 3, 1)]), "round {round}");
        assert_eq!(load(&ssd, PAGE, 5), b"kept\x09");
        ssd.power_cut(round);
    }
    let (info, stats) = Ssd::inspect(&path).expect("whole");
    assert_eq!((info.firmware, info.memory_bytes, info.pin_entries), (Firmware::BaBuffer, WINDOW, 3));
    assert_eq!((stats.dumps, stats.restores, stats.pin_capacity), (3, 2, 3));
}

#[test]
fn a_damaged_dump_or_table_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("ssd.img");
    Ssd::create(&path, &profile(), 64 * PAGE).expect("creates");
    let ssd = Ssd::open(&path, &OpenOptions::default()).expect("opens");
    ssd.pin(A, PAGE, Lpa(3), PAGE).expect("pins");
    ssd.persist(PAGE, &[0x5a; 64], None, TAG).expect("stores");
    let damage = |needle: &[u8], to: &[u8]| {
        let image = std::fs::read(&path).expect("reads");
        let found: Vec<usize> = (0..image.len() - needle.len())
            .step_by(8)
            .filter(|&at| image[at..].starts_with(needle))
            .collect();
        assert!(!found.is_empty(), "the image holds {needle:?}");
        let mut outcomes = Vec::new();
        for at in found {
            let mut damaged = image.clone();
            damaged[at..at + to.len()].copy_from_slice(to);
            outcomes.push(Ssd::from_image(&damaged, &OpenOptions::default()).map(drop));
        }
        outcomes
    };
    let word = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let record = word(&[7, PAGE, 3, 1]);
    for wrong in
        [word(&[7, PAGE, 64, 1]), word(&[7, 1, 3, 1]), word(&[7, PAGE, 3, 16]), word(&[7, PAGE, 3, u64::MAX])]
    {
        let outcomes = damage(&record, &wrong);
        assert!(
            outcomes.iter().all(|outcome| matches!(outcome, Err(ImageError::Corrupt(_)))),
            "{outcomes:?}"
        );
    }
    ssd.power_cut(1);
    drop(ssd);
    let outcomes = damage(&[0x5a; 64], &[0; 8]);
    let Err(ImageError::Corrupt(cause)) = &outcomes[0] else { panic!("{outcomes:?}") };
    assert!(cause.contains("checksum"), "{cause}");
}

#[test]
fn a_buffer_that_the_capacitors_cannot_save_is_not_made() {
    let mut profile = Profile::named("2b-ssd").expect("built in");
    profile.firmware.kind = Firmware::BaBuffer;
    profile.ba_buffer.bytes = 16 << 20;
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("ssd.img");
    let refusal = Ssd::create(&path, &profile, 64 << 20).expect_err("too much");
    assert!(matches!(refusal, ImageError::Energy { bytes, needed_uj, budget_uj }
        if bytes == 16 << 20 && needed_uj > budget_uj));
    assert!(!path.exists());
    profile.ba_buffer.capacitance_uf *= 2;
    Ssd::create(&path, &profile, 64 << 20).expect("twice the capacitors");
}

#[test]
fn forks_have_the_pins_and_what_is_dumped() {
    let origin = dumped_device().forkable().expect("forkable");
    let (one, other) = (origin.fork_device().expect("a fork"), origin.fork_device().expect("a fork"));
    check_dumped(&one);
    assert_eq!(one.contents(&[]), other.contents(&[]));
    other.flush_entry(B).expect("flushes");
    assert_ne!(one.contents(&[]), other.contents(&[]), "the table is part of the contents");
    one.power_cut(1);
    one.settle();
    let fork = one.fork_device().expect("a fork of a device without power");
    check_dumped(&fork);
}

/// `golden/ssd-v2-ba-buffer.img` was written by the first program that had this firmware.
#[test]
fn the_golden_image_stays_readable() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/ssd-v2-ba-buffer.img");
    if std::env::var("AMPHI_WRITE_GOLDEN").is_ok() {
        write_golden(&golden);
    }
    let ssd = Ssd::from_image(&std::fs::read(&golden).expect("reads"), &OpenOptions::default());
    let ssd = ssd.expect("opens");
    assert_eq!((ssd.info().firmware, ssd.info().format_version), (Firmware::BaBuffer, 2));
    assert_eq!(ssd.entries(), Ok(vec![entry(A, PAGE, 2, 2)]), "restored from the dump");
    let mut expected = vec![3; PAGE as usize];
    expected[10..16].copy_from_slice(b"golden");
    assert_eq!(load(&ssd, PAGE, PAGE as usize), expected);
    assert_eq!(load(&ssd, 2 * PAGE, PAGE as usize), [4; PAGE as usize]);
    assert_eq!(read(&ssd, 1), Ok(vec![2; PAGE as usize]));
}

fn write_golden(path: &Path) {
    let mut profile = profile();
    profile.name = "golden".to_owned();
    profile.flash.pages_per_block = 4;
    profile.log.partition_bytes = 64 << 10;
    Ssd::create(path, &profile, 64 << 10).expect("creates");
    let ssd = Ssd::open(path, &OpenOptions::default()).expect("opens");
    for page in 0..8_u64 {
        ssd.write(Lpa(page), &[page as u8 + 1; PAGE as usize], TAG).expect("writes");
    }
    ssd.pin(A, PAGE, Lpa(2), 2 * PAGE).expect("pins");
    ssd.persist(PAGE + 10, b"golden", None, TAG).expect("stores");
    ssd.power_cut(1);
}
