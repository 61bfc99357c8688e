//! The mapping found again: after a loss of power the device knows from flash alone where every page is, what
//! was trimmed, and how much of each block is live; finding it takes time, and a checkpoint shortens it.

use amphi_device::{BlockPort, BytePortExt, Lpa, Structure, TxId, WriteLog};
use amphi_rt::{Sim, task, time};
use amphi_ssd::{BlockDurabilityName, Profile, Ssd};

const TAG: Structure = Structure::Data;

fn profile(name: &str) -> Profile {
    let mut profile = Profile::named(name).expect("built in");
    profile.flash.channels = 2;
    profile.flash.ways = 2;
    profile.flash.pages_per_block = 16;
    profile.flash.checkpoint_pages = 512;
    profile.log.region_bytes = 128 << 10;
    profile.log.txlog_bytes = 4096;
    profile.log.partition_bytes = 1 << 20;
    profile
}

fn random(state: &mut u64, bound: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % bound
}

/// Lets background work end.
fn settle() {
    time::sleep_ns(10_000_000_000);
}

fn read(ssd: &Ssd, page: u64) -> [u8; 4096] {
    let mut bytes = [0; 4096];
    ssd.read(Lpa(page), &mut bytes, TAG).expect("reads");
    bytes
}

/// Overwrites, trims, log cleaning, garbage collection, checkpoints: then the power goes, and the mapping
/// comes back to the page.
#[test]
fn the_mapping_comes_back_as_it_was() {
    for seed in 0..30_u64 {
        Sim::new(seed).run(|| {
            let mut profile = profile(["free", "mssd-pcie3"][seed as usize % 2]);
            if seed % 3 == 0 {
                profile.persistence.block_durability = BlockDurabilityName::Flush;
            }
            let pages = 1000;
            let mut ssd = Ssd::in_memory(&profile, pages * 4096);
            let mut expected = vec![0_u8; pages as usize];
            let mut state = seed;
            for cut in 0..4 {
                for round in 0..2500_u64 {
                    let page = random(&mut state, pages);
                    let value = (round % 250 + 1) as u8;
                    match random(&mut state, 20) {
                        0 => {
                            let count = (1 + random(&mut state, 30)).min(pages - page);
                            ssd.trim(Lpa(page), count).expect("trims");
                            expected[page as usize..(page + count) as usize].fill(0);
                        }
                        1..4 => {
                            let tx = TxId::new(round as u32 + 1).filter(|_| value.is_multiple_of(2));
                            ssd.persist(Lpa(page).byte(0), &[value; 64], tx, TAG).expect("room");
                            ssd.persist(Lpa(page).byte(64), &[value; 4032], tx, TAG).expect("room");
                            tx.map_or(Ok(()), |tx| ssd.commit(tx)).expect("commits");
                            expected[page as usize] = value;
                        }
                        _ => {
                            ssd.write(Lpa(page), &[value; 4096], TAG).expect("room");
                            expected[page as usize] = value;
                        }
                    }
                }
                ssd.flush().expect("flushes");
                settle();
                let (mapped, live) = (ssd.mapped_pages(), ssd.live_pages());
                ssd.power_cut(seed + cut);
                ssd = ssd.restart().expect("whole");
                assert_eq!(ssd.mapped_pages(), mapped, "seed {seed} cut {cut}");
                assert_eq!(ssd.live_pages(), live, "seed {seed} cut {cut}");
                ssd.recover().expect("recovers");
                for (page, &value) in (0..).zip(&expected) {
                    assert_eq!(read(&ssd, page), [value; 4096], "seed {seed} cut {cut} page {page}");
                }
            }
            let stats = ssd.stats();
            let (collected, checkpoints) = (stats.gc_runs, stats.flash_mapping.pages_written);
            assert!(collected > 50 && checkpoints > 10, "seed {seed}: {collected} {checkpoints}");
        });
    }
}

/// More trims than the trim log holds, one page at a time: it is emptied by checkpoints, and no trimmed page
/// comes back.
#[test]
fn trims_stay_trimmed() {
    Sim::new(1).run(|| {
        let mut profile = profile("free");
        profile.flash.checkpoint_pages = 1 << 30;
        let mut ssd = Ssd::in_memory(&profile, 32 << 20);
        for page in 0..8192 {
            ssd.write(Lpa(page), &[1; 4096], TAG).expect("room");
        }
        for cut in 0..3 {
            for page in (cut..8192).step_by(3) {
                ssd.trim(Lpa(page), 1).expect("trims");
            }
            ssd.power_cut(cut);
            ssd = ssd.restart().expect("whole");
            for page in 0..8192 {
                assert_eq!(read(&ssd, page)[0], u8::from(page % 3 > cut), "cut {cut} page {page}");
            }
        }
        assert!(ssd.mapped_pages().is_empty());
        assert_eq!(ssd.live_pages().iter().sum::<u32>(), 0);
        assert!(ssd.stats().flash_mapping.pages_written > 0, "the trim log was emptied by a checkpoint");
    });
}

/// Power-up reads what it must at the pace of the dies: after a checkpoint little, without one every page.
#[test]
fn finding_the_mapping_takes_time_and_a_checkpoint_saves_it() {
    let power_up_ns = |checkpoint_pages: u64| {
        Sim::new(1).run(|| {
            let mut profile = profile("mssd-pcie3");
            profile.flash.checkpoint_pages = checkpoint_pages;
            let ssd = Ssd::in_memory(&profile, 32 << 20);
            for page in 0..8192 {
                ssd.write(Lpa(page), &[1; 4096], TAG).expect("room");
            }
            settle();
            ssd.power_cut(1);
            let before = time::now_ns();
            let ssd = ssd.restart().expect("whole");
            assert!(ssd.stats().flash_mapping.pages_read > 0);
            time::now_ns() - before
        })
    };
    let (scan, checkpoint) = (power_up_ns(1 << 30), power_up_ns(1024));
    println!("power-up: {scan} ns without a checkpoint, {checkpoint} ns with one");
    // 8192 pages and the headers of 512 blocks, 40 us each, on four dies.
    let expected = (8192 + 512) / 4 * 40_000;
    assert!(scan >= expected && scan < expected * 11 / 10, "{scan}");
    assert!(checkpoint * 4 < scan, "{checkpoint}");
}

/// Checkpoints cost what they should: a small share of all programs.
#[test]
fn checkpoints_are_a_small_share_of_all_programs() {
    Sim::new(1).run(|| {
        let ssd = Ssd::in_memory(&profile("mssd-pcie3"), 32 << 20);
        let mut state = 1;
        for _ in 0..60_000 {
            ssd.write(Lpa(random(&mut state, 7000)), &[1; 4096], TAG).expect("room");
        }
        settle();
        let stats = ssd.stats();
        let all = stats.flash_bytes_written / 4096;
        let share = stats.flash_mapping.pages_written as f64 / all as f64;
        println!("{:.2} % of {all} programs were of checkpoints", share * 100.0);
        assert!(share > 0.005 && share < 0.05, "{share}");
    });
}

/// A controller that has one page of a checkpoint on its way at a time holds back nobody who writes; one that
/// puts a checkpoint into the write buffer has everybody wait for the die that it fills.
#[test]
fn writers_do_not_wait_for_a_checkpoint() {
    const WRITERS: u64 = 16;
    const COMMANDS: u64 = 24;
    const PAGES: u64 = 64;
    let elapsed_ns = |checkpoint_pages: u64, at_once: u64| {
        Sim::new(1).run(|| {
            let mut profile = Profile::named("romefs-a").expect("built in");
            profile.flash.pages_per_block = 16;
            profile.flash.checkpoint_pages = checkpoint_pages;
            profile.flash.checkpoint_at_once = at_once;
            let ssd = &Ssd::in_memory(&profile, 128 << 20);
            let begun = time::now_ns();
            task::scope(|scope| {
                for writer in 0..WRITERS {
                    let _joined_by_the_scope = scope.spawn("writer", move || {
                        for command in 0..COMMANDS {
                            let at = Lpa((writer * COMMANDS + command) * PAGES);
                            ssd.write(at, &[1; (PAGES * 4096) as usize], TAG).expect("room");
                        }
                    });
                }
            });
            (time::now_ns() - begun, ssd.stats().flash_mapping.pages_written)
        })
    };
    let (without, none) = elapsed_ns(1 << 40, 1);
    let (one_at_a_time, pages) = elapsed_ns(1024, 1);
    let (buffered, many) = elapsed_ns(1024, 0);
    println!("{without} ns, {one_at_a_time} ns with {pages} pages of checkpoints, {buffered} ns with {many}");
    assert!(none == 0 && pages > 10 && many > 100, "{none} {pages} {many}");
    assert!(one_at_a_time * 100 < without * 105, "{one_at_a_time} {without}");
    assert!(buffered * 100 > without * 120, "{buffered} {without}");
}

/// A long block write programs several pages before the first of them counts. Wherever the power goes, every
/// sector is the old one or the new one, and no flash page is lost to those that were programmed in vain.
#[test]
fn a_long_write_cut_at_any_step_leaves_old_sectors_and_new_ones() {
    const FIRST: u64 = 230;
    const PAGES: usize = 40;
    let mut steps = 0;
    loop {
        let whole = Sim::new(steps).run(|| {
            // It crosses from one partition of 256 pages into the next.
            let mut ssd = Ssd::in_memory(&profile("free"), 1000 * 4096);
            ssd.write(Lpa(FIRST), &[1; PAGES * 4096], TAG).expect("writes");
            ssd.cut_after_steps(steps, steps);
            let whole = ssd.write(Lpa(FIRST), &[2; PAGES * 4096], TAG).is_ok();
            ssd.power_cut(steps);
            ssd = ssd.restart().expect("a whole image");
            ssd.recover().expect("recovers");
            for page in FIRST..FIRST + PAGES as u64 {
                let bytes = read(&ssd, page);
                let (sectors, _) = bytes.as_chunks::<512>();
                let sound = |sector: &[u8; 512]| *sector == [2; 512] || (!whole && *sector == [1; 512]);
                assert!(sectors.iter().all(sound), "page {page} after a cut at step {steps}");
            }
            let live: u64 = ssd.live_pages().iter().map(|live| u64::from(*live)).sum();
            assert_eq!(
                live,
                ssd.mapped_pages().len() as u64,
                "flash pages in use after a cut at step {steps}"
            );
            for round in 0..100_u8 {
                ssd.write(Lpa(FIRST), &[round; PAGES * 4096], TAG).expect("blocks are collected");
            }
            whole
        });
        steps += 1;
        if whole {
            break;
        }
    }
    assert!(steps > 3 * PAGES as u64, "each page takes three steps; there were {steps}");
}
