//! Flash that fails: bad blocks, programs and erases that do not succeed, pages that ECC reads at the second
//! attempt or not at all.

use amphi_device::{BlockPort, Error, Lpa, Structure, WriteLog};
use amphi_rt::Sim;
use amphi_ssd::{MediaProfile, Profile, Ssd};

const TAG: Structure = Structure::Data;
const PAGES: u64 = 4096;

fn profile(name: &str, media: MediaProfile) -> Profile {
    let mut profile = Profile::named(name).expect("built in");
    profile.flash.channels = 2;
    profile.flash.ways = 2;
    profile.flash.pages_per_block = 16;
    profile.flash.over_provisioning_percent = 40;
    profile.flash.checkpoint_pages = 4096;
    profile.log.region_bytes = 128 << 10;
    profile.log.txlog_bytes = 4096;
    profile.media = media;
    profile
}

fn random(state: &mut u64, bound: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % bound
}

fn read(ssd: &Ssd, page: u64) -> Result<[u8; 4096], Error> {
    let mut bytes = [0; 4096];
    ssd.read(Lpa(page), &mut bytes, TAG).map(|()| bytes)
}

#[test]
fn blocks_that_fail_are_retired_and_nothing_is_lost() {
    for seed in 0..6 {
        Sim::new(seed).run(|| {
            let media = MediaProfile {
                seed,
                factory_bad_ppm: 20_000,
                program_failure_ppb: 100_000,
                erase_failure_ppb: 1_000_000,
                ..MediaProfile::default()
            };
            let mut ssd = Ssd::in_memory(&profile("mssd-pcie3", media), PAGES * 4096);
            let factory = ssd.stats().bad_blocks;
            assert!(factory > 0, "seed {seed}: some of 400 blocks are bad from the factory");
            let mut state = seed;
            let mut expected = vec![0_u8; PAGES as usize];
            for cut in 0..8 {
                for round in 0..8000 {
                    let (page, value) = (random(&mut state, PAGES), round as u8 | 1);
                    ssd.write(Lpa(page), &[value; 4096], TAG).expect("room");
                    expected[page as usize] = value;
                }
                ssd.cut_after_steps(random(&mut state, 3000), cut);
                let interrupted = loop {
                    let page = random(&mut state, PAGES);
                    match ssd.write(Lpa(page), &[200; 4096], TAG) {
                        Ok(()) => expected[page as usize] = 200,
                        Err(Error::PowerLost) => break page,
                        Err(other) => panic!("seed {seed}: {other}"),
                    }
                };
                ssd = ssd.restart().expect("whole");
                ssd.recover().expect("recovers");
                for (page, &value) in (0..PAGES).zip(&expected).filter(|(page, _)| *page != interrupted) {
                    assert!(read(&ssd, page) == Ok([value; 4096]), "seed {seed} cut {cut} page {page}");
                }
                expected[interrupted as usize] = 7;
                ssd.write(Lpa(interrupted), &[7; 4096], TAG).expect("room");
            }
            amphi_rt::time::sleep_ns(1_000_000_000);
            let stats = ssd.stats();
            let failed = (stats.program_failures, stats.erase_failures);
            assert!(failed.0 > 3 && failed.1 > 1, "seed {seed}: {failed:?}");
            assert!(stats.bad_blocks > factory + 8, "seed {seed}: {factory} {}", stats.bad_blocks);
            // They stay bad.
            let bad = stats.bad_blocks;
            let ssd = ssd.restart().expect("whole");
            assert!(ssd.stats().bad_blocks >= bad, "seed {seed}");
        });
    }
}

#[test]
fn a_page_beyond_correction_is_an_error_until_it_is_written_again() {
    let media = MediaProfile { seed: 3, uncorrectable_ppb: 5_000_000, ..MediaProfile::default() };
    let ssd = Ssd::in_memory(&profile("free", media), PAGES * 4096);
    for page in 0..PAGES {
        ssd.write(Lpa(page), &[page as u8; 4096], TAG).expect("room");
    }
    let lost = |ssd: &Ssd| -> Vec<u64> {
        (0..PAGES)
            .filter(|&page| match read(ssd, page) {
                Ok(bytes) => {
                    assert_eq!(bytes, [page as u8; 4096]);
                    false
                }
                Err(cause) => {
                    assert_eq!(cause, Error::Media(Lpa(page)));
                    true
                }
            })
            .collect()
    };
    let first = lost(&ssd);
    assert!((5..60).contains(&first.len()), "{} of 4096 at 0.5 %", first.len());
    assert_eq!(lost(&ssd), first, "the same ones every time");
    assert_eq!(ssd.stats().uncorrectable_reads, 2 * first.len() as u64);
    ssd.power_cut(1);
    let ssd = ssd.restart().expect("whole");
    assert_eq!(lost(&ssd), first, "and after a restart");
    // Collection moves everything; what was lost stays lost, by its own name.
    let mut state = 1;
    for _ in 0..60_000 {
        let page = random(&mut state, PAGES / 2) + PAGES / 2;
        ssd.write(Lpa(page), &[page as u8; 4096], TAG).expect("room");
    }
    assert!(ssd.stats().gc_runs > 100);
    let later = lost(&ssd);
    assert!(first.iter().filter(|&&page| page < PAGES / 2).all(|page| later.contains(page)));
    for &page in &later {
        for _ in 0..4 {
            ssd.write(Lpa(page), &[page as u8; 4096], TAG).expect("room");
            if read(&ssd, page).is_ok() {
                break;
            }
        }
        assert_eq!(read(&ssd, page), Ok([page as u8; 4096]), "a new copy is another page");
    }
}

#[test]
fn a_corrected_read_is_counted_and_takes_longer() {
    let read_ns = |ppm: u64| {
        Sim::new(1).run(|| {
            let media =
                MediaProfile { read_retry_ppm: ppm, read_retry_ns: 70_000, ..MediaProfile::default() };
            let ssd = Ssd::in_memory(&profile("mssd-pcie3", media), PAGES * 4096);
            ssd.write(Lpa(1), &[1; 4096], TAG).expect("room");
            amphi_rt::time::sleep_ns(1_000_000);
            let began = amphi_rt::time::now_ns();
            assert_eq!(read(&ssd, 1), Ok([1; 4096]));
            (amphi_rt::time::now_ns() - began, ssd.stats().read_retries)
        })
    };
    let ((plain, none), (retried, one)) = (read_ns(0), read_ns(1_000_000));
    assert_eq!((none, one), (0, 1));
    assert_eq!(retried, plain + 70_000);
}

/// As many pages as a die has planes are programmed in the time of one.
#[test]
fn planes_multiply_what_a_die_programs() {
    let fill_ns = |planes: u64| {
        Sim::new(1).run(|| {
            let media = MediaProfile { planes, ..MediaProfile::default() };
            let mut profile = profile("mssd-pcie3", media);
            profile.flash.write_buffer_pages = 64;
            let ssd = Ssd::in_memory(&profile, 4 * PAGES * 4096);
            let data = vec![1; 64 * 4096];
            for batch in 0..64 {
                ssd.write(Lpa(batch * 64), &data, TAG).expect("room");
            }
            amphi_rt::time::now_ns()
        })
    };
    let (one, two, four) = (fill_ns(1), fill_ns(2), fill_ns(4));
    println!("16 MiB to four dies: {one} ns with one plane, {two} with two, {four} with four");
    // 4096 pages, 60 us each, on four dies.
    assert!((one as f64 / (4096.0 / 4.0 * 60_000.0) - 1.0).abs() < 0.02, "{one}");
    assert!((one as f64 / two as f64 - 2.0).abs() < 0.1, "{two}");
    assert!((one as f64 / four as f64 - 4.0).abs() < 0.4, "{four}");
}
