//! The page-cache firmware as a host meets it: what hits, what waits for flash, what is evicted, what it
//! refuses, what survives.

use amphi_device::{
    BlockPort, BytePort, BytePortExt, Completion, Device, Error, Lpa, Structure, TxId, WriteLog,
};
use amphi_rt::Sim;
use amphi_rt::time::now_ns;
use amphi_ssd::{Firmware, Profile, Ssd};

const TAG: Structure = Structure::Data;
const FRAMES: u64 = 32;

/// The emulator of ByteFS table 4 with a cache of 32 pages.
fn device() -> Ssd {
    device_that(|_| {})
}

fn device_that(differs: impl FnOnce(&mut Profile)) -> Ssd {
    let mut profile = Profile::named("mssd-pcie3").expect("built in");
    profile.firmware.kind = Firmware::PageCache;
    profile.firmware.memory_bytes = FRAMES * 4096;
    profile.firmware.write_back_at_percent = 95;
    differs(&mut profile);
    Ssd::in_memory(&profile, 64 << 20)
}

fn ns(work: impl FnOnce() -> amphi_device::Result<()>) -> u64 {
    let start = now_ns();
    work().expect("the device answers");
    now_ns() - start
}

/// Fills the cache with other pages, so that `first` pages are in flash only.
fn in_flash(ssd: &Ssd, first: u64) {
    for page in 0..first {
        ssd.write(Lpa(page), &[page as u8 + 1; 4096], TAG).expect("writes");
    }
    for page in 0..2 * FRAMES {
        ssd.write(Lpa(1000 + page), &[9; 4096], TAG).expect("writes");
    }
    amphi_rt::time::sleep_ns(1_000_000_000);
}

#[test]
fn a_miss_takes_the_flash_page_and_a_hit_does_not() {
    Sim::new(1).run(|| {
        let ssd = device();
        in_flash(&ssd, 4);
        let line = ns(|| ssd.load(0, &mut [0; 64], TAG));
        assert!((44_000..46_000).contains(&line), "a missing line took {line} ns, not 40 + 4.8 us");
        let neighbour = ns(|| ssd.load(4032, &mut [0; 64], TAG));
        assert!(neighbour < 5_000, "a line of a cached page took {neighbour} ns");
        let missed = ns(|| ssd.persist(4096, &[1; 64], None, TAG));
        assert!((40_000..42_000).contains(&missed), "a store to a missing page took {missed} ns");
        let hit = ns(|| ssd.persist(4096 + 64, &[1; 64], None, TAG));
        assert!(hit < 700, "a store to a cached page took {hit} ns");
        let read = ns(|| ssd.read(Lpa(1), &mut [0; 4096], TAG));
        assert!(read < 5_000, "a block read of a cached page took {read} ns");
        let mut page = [0; 4096];
        ssd.read(Lpa(1), &mut page, TAG).expect("reads");
        assert_eq!((page[0], page[127], page[128]), (1, 1, 2), "the store is merged into the page");
    });
}

/// A store of a whole page does not read the page: it came into a frame with what another page had there, and
/// the power went.
#[test]
fn a_page_that_is_stored_as_a_whole_is_the_old_or_the_new_one_in_each_word() {
    for seed in 0..200 {
        let found = Sim::new(seed).run(|| {
            let ssd = device();
            in_flash(&ssd, 1);
            ssd.cut_after_steps(seed % 8, seed);
            let stored = ssd.persist(0, &[2; 4096], None, TAG);
            ssd.power_cut(seed);
            let ssd = ssd.restart().expect("whole");
            let mut page = [0; 4096];
            ssd.read(Lpa(0), &mut page, TAG).expect("reads");
            (stored.is_ok(), page)
        });
        let (stored, page) = found;
        let legal = |byte: &u8| *byte == 2 || *byte == 1 && !stored;
        assert_eq!(page.iter().find(|byte| !legal(byte)), None, "seed {seed}");
    }
}

#[test]
fn one_write_back_carries_what_many_stores_changed() {
    Sim::new(1).run(|| {
        let ssd = device();
        in_flash(&ssd, 4);
        let before = ssd.stats();
        for line in 0..64 {
            ssd.persist(line * 64, &[7; 64], None, TAG).expect("stores");
        }
        let after = ssd.stats();
        assert_eq!(after.cache_misses - before.cache_misses, 1);
        assert_eq!(after.cache_hits - before.cache_hits, 63);
        assert_eq!(after.flash_host.pages_read - before.flash_host.pages_read, 1);
        // The page that made way was dirty or not; that of the stores is still in the cache.
        assert!(after.cache_write_backs - before.cache_write_backs <= 1);
        for page in 0..2 * FRAMES {
            ssd.read(Lpa(1000 + page), &mut [0; 4096], TAG).expect("reads");
        }
        let evicted = ssd.stats();
        assert_eq!(evicted.cache_dirty, 0);
        let mut bytes = [0; 4096];
        ssd.read(Lpa(0), &mut bytes, TAG).expect("reads");
        assert_eq!(bytes, [7; 4096]);
    });
}

#[test]
fn the_page_used_longest_ago_makes_way() {
    Sim::new(1).run(|| {
        let ssd = device();
        in_flash(&ssd, 200);
        let mut line = [0; 64];
        for page in 100..100 + FRAMES {
            ssd.load(Lpa(page).byte(0), &mut line, TAG).expect("loads");
        }
        // The first is used again, so the second is the oldest.
        ssd.load(Lpa(100).byte(0), &mut line, TAG).expect("loads");
        ssd.load(Lpa(190).byte(0), &mut line, TAG).expect("loads");
        assert!(
            ns(|| ssd.load(Lpa(100).byte(0), &mut [0; 64], TAG)) < 5_000,
            "the page used last was evicted"
        );
        assert!(ns(|| ssd.load(Lpa(101).byte(0), &mut [0; 64], TAG)) > 40_000, "the oldest page was kept");
    });
}

#[test]
fn a_cache_of_dirty_pages_is_written_back_in_the_background() {
    Sim::new(1).run(|| {
        let mut profile = Profile::named("mssd-pcie3").expect("built in");
        profile.firmware.kind = Firmware::PageCache;
        profile.firmware.memory_bytes = 1024 * 4096;
        profile.firmware.write_back_at_percent = 50;
        let ssd = Ssd::in_memory(&profile, 64 << 20);
        for page in 0..700 {
            ssd.write(Lpa(page), &[1; 4096], TAG).expect("writes");
        }
        amphi_rt::time::sleep_ns(1_000_000_000);
        let stats = ssd.stats();
        assert!(stats.cache_dirty <= 512, "{} pages are dirty", stats.cache_dirty);
        assert_eq!(stats.cache_evictions, 0, "there was room");
        assert!(stats.cache_write_backs >= 188);
    });
}

/// What was made dirty while pages were written back once stayed so until another page became dirty.
#[test]
fn what_is_made_dirty_while_pages_are_written_back_is_written_back_too() {
    Sim::new(1).run(|| {
        let ssd = device_that(|profile| profile.firmware.write_back_at_percent = 50);
        ssd.slow_down_steps(7, 1);
        for page in 0..24 {
            ssd.persist(Lpa(page).byte(0), &[1], None, TAG).expect("stores");
        }
        assert!(ssd.stats().cache_dirty > FRAMES / 2);
        amphi_rt::time::sleep_ns(1_000_000_000);
        let dirty = ssd.stats().cache_dirty;
        assert!(dirty <= FRAMES / 2, "{dirty} of {FRAMES} pages are dirty");
    });
}

#[test]
fn it_has_no_transactions_and_says_so() {
    let ssd = device();
    assert!(!ssd.contract().transactions);
    let tx = TxId::new(1).expect("not zero");
    for outcome in
        [ssd.store(0, &[1; 64], Some(tx), TAG), ssd.commit(tx), ssd.recover().map(|_| ()), ssd.clean_log()]
    {
        let error = outcome.expect_err("refused");
        assert!(matches!(error, Error::Unsupported(_)), "{error:?}");
        assert!(error.to_string().contains("page cache, not a write log"), "{error}");
    }
}

#[test]
fn what_is_cached_survives_closing_killing_and_power_cuts() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("ssd.img");
    let mut profile = Profile::named("free").expect("built in");
    profile.firmware.kind = Firmware::PageCache;
    profile.firmware.memory_bytes = 64 << 10;
    Ssd::create(&path, &profile, 16 << 20).expect("creates");
    let expect = |ssd: &Ssd, first: u8| {
        for page in 0..40_u64 {
            let mut bytes = [0; 4096];
            ssd.submit_read(Lpa(page), &mut bytes, TAG).and_then(Completion::wait).expect("reads");
            assert_eq!((bytes[0], bytes[4095]), (first, page as u8 + 1), "page {page}");
        }
    };
    let ssd = Ssd::open(&path, &Default::default()).expect("opens");
    for page in 0..40_u64 {
        ssd.write(Lpa(page), &[page as u8 + 1; 4096], TAG).expect("writes");
        ssd.persist(Lpa(page).byte(0), &[200], None, TAG).expect("stores");
    }
    assert!(ssd.stats().cache_dirty > 0);
    let fork = ssd.fork().expect("memory");
    expect(&fork, 200);
    assert_eq!(fork.contents(&[]), ssd.contents(&[]));
    fork.persist(0, &[17], None, TAG).expect("stores");
    assert_ne!(fork.contents(&[]), ssd.contents(&[]), "a changed byte shows");
    drop(ssd);
    let ssd = Ssd::open(&path, &Default::default()).expect("opens");
    expect(&ssd, 200);
    for page in 0..40_u64 {
        ssd.persist(Lpa(page).byte(0), &[201], None, TAG).expect("stores");
    }
    ssd.power_cut(3);
    drop(ssd);
    let ssd = Ssd::open(&path, &Default::default()).expect("opens");
    expect(&ssd, 201);
    ssd.trim(Lpa(0), 40).expect("trims");
    let ssd = ssd.restart().expect("opens");
    let mut bytes = [1; 4096];
    ssd.read(Lpa(39), &mut bytes, TAG).expect("reads");
    assert_eq!(bytes, [0; 4096]);
}

/// `golden/ssd-v2-page-cache.img` was written by the first program that had this firmware, and closed with
/// dirty pages in its cache.
#[test]
fn the_golden_image_stays_readable() {
    let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/ssd-v2-page-cache.img");
    if std::env::var("AMPHI_WRITE_GOLDEN").is_ok() {
        write_golden(&golden);
    }
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("golden.img");
    std::fs::copy(&golden, &path).expect("copied");
    let ssd = Ssd::open(&path, &Default::default()).expect("opens");
    assert_eq!((ssd.info().firmware, ssd.info().cache_bytes), (Firmware::PageCache, 64 << 10));
    assert!(ssd.stats().cache_dirty > 0);
    for page in 0..24_u64 {
        let mut expected = [page as u8 + 1; 4096];
        match page {
            3 => expected[10..30].fill(0xaa),
            5 => expected.fill(0),
            23 => expected[64..128].fill(0xbb),
            _ => {}
        }
        let mut bytes = [0; 4096];
        ssd.read(Lpa(page), &mut bytes, TAG).expect("reads");
        assert!(bytes == expected, "page {page}");
    }
}

/// Twenty-four pages through a cache of sixteen, the sixth trimmed, stores into one that was evicted and one
/// that was not.
fn write_golden(path: &std::path::Path) {
    let mut profile = Profile::named("free").expect("built in");
    profile.name = "golden".to_owned();
    (profile.flash.channels, profile.flash.ways, profile.flash.pages_per_block) = (1, 1, 4);
    (profile.log.region_bytes, profile.log.txlog_bytes, profile.log.partition_bytes) =
        (64 << 10, 4096, 64 << 10);
    profile.firmware.kind = Firmware::PageCache;
    (profile.firmware.memory_bytes, profile.firmware.write_back_at_percent) = (64 << 10, 95);
    Ssd::create(path, &profile, 256 << 10).expect("creates");
    let ssd = Ssd::open(path, &Default::default()).expect("opens");
    for page in 0..24_u64 {
        ssd.write(Lpa(page), &[page as u8 + 1; 4096], TAG).expect("writes");
    }
    ssd.persist(Lpa(3).byte(10), &[0xaa; 20], None, TAG).expect("stores");
    ssd.persist(Lpa(23).byte(64), &[0xbb; 64], None, TAG).expect("stores");
    ssd.trim(Lpa(5), 1).expect("trims");
}

#[test]
fn a_load_waits_for_the_pages_that_are_not_brought_in_at_once() {
    let load = |fill_at_once, fill_page_ns| {
        Sim::new(1).run(move || {
            let ssd = device_that(|profile| {
                (profile.firmware.fill_at_once, profile.firmware.fill_page_ns) = (fill_at_once, fill_page_ns);
            });
            in_flash(&ssd, 5);
            let _ = ns(|| ssd.load(4096, &mut [0; 64], TAG));
            let mut pages = [0; 5 * 4096];
            let taken = ns(|| ssd.load(0, &mut pages, TAG));
            let wrong = pages.iter().zip(0..).find(|(byte, at)| **byte != (at / 4096) as u8 + 1);
            assert_eq!(wrong, None);
            taken
        })
    };
    let read_ns = Profile::named("mssd-pcie3").expect("built in").flash.read_ns;
    let at_once = load(0, 0);
    // Four are missing.
    assert_eq!(load(1, 0), at_once + 3 * read_ns);
    assert_eq!(load(2, 0), at_once + read_ns);
    assert_eq!(load(4, 0), at_once);
    assert_eq!(load(0, 1000), at_once + 1000);
    assert_eq!(load(1, 1000), at_once + 3 * read_ns + 4 * 1000);
}

#[test]
fn several_threads_share_a_small_cache() {
    let mut profile = Profile::named("free").expect("built in");
    profile.firmware.kind = Firmware::PageCache;
    profile.firmware.memory_bytes = 64 << 10;
    let ssd = std::sync::Arc::new(Ssd::in_memory(&profile, 16 << 20));
    let tasks: Vec<_> = (0..4_u64)
        .map(|task| {
            let ssd = std::sync::Arc::clone(&ssd);
            amphi_rt::task::spawn("host", move || {
                let mut last = [0_u64; 64];
                for round in 1..60_000_u64 {
                    let page = (round * 7 + round / 13 + task) % 64;
                    let at = Lpa(page).byte(64 * task as usize);
                    let mut back = [0; 8];
                    ssd.load(at, &mut back, TAG).expect("loads");
                    let expected = last[page as usize];
                    assert_eq!(u64::from_le_bytes(back), expected, "task {task} page {page} round {round}");
                    ssd.persist(at, &round.to_le_bytes(), None, TAG).expect("stores");
                    last[page as usize] = round;
                }
            })
        })
        .collect();
    for task in tasks {
        task.join();
    }
    assert!(ssd.stats().cache_evictions > 1000);
}
