//! A device that is nearly full, busy with several tasks, or out of log: it keeps going, and keeps what it
//! was given.

use std::sync::Arc;

use amphi_device::{BlockPort, BytePort, BytePortExt, Error, Lpa, Structure, TxId, WriteLog};
use amphi_rt::{Schedule, Sim};
use amphi_ssd::{GcPolicy, Profile, Ssd};

const TAG: Structure = Structure::Data;

pub(crate) fn profile(name: &str) -> Profile {
    let mut profile = Profile::named(name).expect("built in");
    profile.flash.channels = 2;
    profile.flash.ways = 2;
    profile.flash.pages_per_block = 16;
    profile.log.region_bytes = 128 << 10;
    profile.log.txlog_bytes = 4096;
    profile.log.partition_bytes = 1 << 20;
    profile
}

fn random(state: &mut u64, bound: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % bound
}

/// Random overwrites with 95 % of the host's pages in use.
#[test]
fn a_nearly_full_device_keeps_going() {
    let ssd = Ssd::in_memory(&profile("free"), 32 << 20);
    let pages = 8192;
    let used = pages * 95 / 100;
    let mut stamp = vec![0_u64; used as usize];
    let mut buffer = [0; 4096];
    let mut state = 7;
    for round in 0..used * 6 {
        let page = if round < used { round } else { random(&mut state, used) };
        stamp[page as usize] = round + 1;
        buffer[..8].copy_from_slice(&(round + 1).to_le_bytes());
        buffer[4088..].copy_from_slice(&page.to_le_bytes());
        ssd.write(Lpa(page), &buffer, TAG).expect("room");
    }
    for page in 0..used {
        ssd.read(Lpa(page), &mut buffer, TAG).expect("reads");
        assert_eq!(buffer[..8], stamp[page as usize].to_le_bytes(), "page {page}");
        assert_eq!(buffer[4088..], page.to_le_bytes(), "page {page}");
    }
    let stats = ssd.stats();
    println!(
        "WAF {:.2} at 95 % with 7 % over-provisioning; {} blocks erased, {} to {} times each, {} foreground collections",
        stats.write_amplification,
        stats.blocks_erased,
        stats.erase_count_min,
        stats.erase_count_max,
        stats.gc_foreground_runs
    );
    assert!(
        stats.write_amplification > 1.5 && stats.write_amplification < 12.0,
        "{}",
        stats.write_amplification
    );
    assert!(stats.flash_garbage_collection.pages_written > 0);
}

/// WAF of a device 90 % full whose writes go to a tenth of its pages nine times in ten.
fn skewed_waf(gc: GcPolicy) -> f64 {
    let mut profile = profile("free");
    profile.flash.pages_per_block = 64;
    profile.media.gc = gc;
    let ssd = Ssd::in_memory(&profile, 64 << 20);
    let used = 16_384 * 9 / 10;
    let mut state = 11;
    let mut before = 0.0;
    for round in 0..used * 25 {
        let page = match (round < used, random(&mut state, 10)) {
            (true, _) => round,
            (false, 0) => used / 10 + random(&mut state, used - used / 10),
            // The hot pages lie among the others.
            (false, _) => random(&mut state, used / 10) * 7 % used,
        };
        ssd.write(Lpa(page), &[page as u8; 4096], TAG).expect("room");
        if round == used * 10 {
            before = ssd.stats().flash_bytes_written as f64;
        }
    }
    // Once the blocks have sorted themselves out.
    (ssd.stats().flash_bytes_written as f64 - before) / (used as f64 * 15.0 * 4096.0)
}

/// Cost-benefit collection leaves hot blocks time to die by themselves, and lets cold ones gather.
#[test]
fn cost_benefit_separates_hot_from_cold() {
    let (greedy, cost_benefit) = (skewed_waf(GcPolicy::Greedy), skewed_waf(GcPolicy::CostBenefit));
    println!("WAF under skewed overwrites: greedy {greedy:.2}, cost-benefit {cost_benefit:.2}");
    assert!(cost_benefit < greedy * 0.95, "cost-benefit {cost_benefit:.2}, greedy {greedy:.2}");
}

/// Four fifths of the data are never overwritten, and wear evenly all the same.
#[test]
fn cold_data_take_their_share_of_the_wear() {
    // In virtual time: how far the collection in the background gets is the seed's doing, not the machine's.
    for seed in 0..4 {
        Sim::new(seed).run(|| wear_of_cold_data(seed));
    }
}

fn wear_of_cold_data(seed: u64) {
    let ssd = Ssd::in_memory(&profile("free"), 8 << 20);
    let mut state = 5 + seed;
    let mut buffer = [0; 4096];
    for round in 0..200_000_u64 {
        let page = if round < 2000 { round } else { 1600 + random(&mut state, 400) };
        buffer[..8].copy_from_slice(&page.to_le_bytes());
        ssd.write(Lpa(page), &buffer, TAG).expect("room");
    }
    let stats = ssd.stats();
    println!("seed {seed}: {} to {} erases a block", stats.erase_count_min, stats.erase_count_max);
    assert!(stats.erase_count_max > 100, "too little wear to judge");
    // Without levelling, four fifths of the blocks would be erased once and the others three thousand times.
    assert!(stats.erase_count_min * 3 > stats.erase_count_max, "seed {seed}: {}", stats.erase_count_min);
    for page in 0..2000 {
        ssd.read(Lpa(page), &mut buffer, TAG).expect("reads");
        assert_eq!(buffer[..8], page.to_le_bytes());
    }
}

/// A store goes to the log alone (BY-2); what the log holds is read from the log, and every other byte read
/// is one read of a flash page, since none is kept (BY-4).
#[test]
fn byte_writes_touch_no_flash_and_byte_reads_only_beside_the_log() {
    let ssd = Ssd::in_memory(&profile("free"), 8 << 20);
    for page in 0..100 {
        ssd.write(Lpa(page), &[1; 4096], TAG).expect("room");
    }
    let flash = || (ssd.stats().flash_bytes_read, ssd.stats().flash_bytes_written);
    let (read, written) = flash();
    let mut line = [0; 64];
    for page in 0..100 {
        ssd.persist(Lpa(page).byte(128), &[2; 64], None, TAG).expect("room");
        assert_eq!(flash(), (read, written), "a byte write to page {page}");
    }
    for page in 0..100 {
        ssd.load(Lpa(page).byte(128), &mut line, TAG).expect("loads");
        assert_eq!(
            (line, flash()),
            ([2; 64], (read, written)),
            "a byte read of the log's line of page {page}"
        );
    }
    for reads in 1..=3 {
        ssd.load(Lpa(7).byte(192), &mut line, TAG).expect("loads");
        assert_eq!((line, flash()), ([1; 64], (read + reads * 4096, written)), "byte read {reads} of flash");
    }
}

/// While a region is cleaned the other takes stores (BY-6): none waits for flash as long as cleaning keeps
/// up.
#[test]
fn no_store_waits_for_a_cleaning() {
    Sim::new(1).run(|| {
        let profile = profile("mssd-pcie3");
        let ssd = Ssd::in_memory(&profile, 8 << 20);
        let mut longest = 0;
        for round in 0..6000 {
            let begin = amphi_rt::time::now_ns();
            ssd.persist(Lpa(round % 32).byte(round as usize / 32 % 64 * 64), &[3; 64], None, TAG)
                .expect("room");
            longest = longest.max(amphi_rt::time::now_ns() - begin);
            amphi_rt::time::sleep_ns(5_000);
        }
        assert!(ssd.stats().log_cleanings >= 2, "{} cleanings", ssd.stats().log_cleanings);
        assert!(longest < profile.flash.program_ns, "a store took {longest} ns");
    });
}

/// Every page of the device in use, and power cuts in between: space never runs out.
#[test]
fn a_full_device_survives_cuts_without_losing_space() {
    let mut ssd = Ssd::in_memory(&profile("free"), 4 << 20);
    let mut state = 3;
    let mut buffer = [0; 4096];
    for cut in 0..60_u64 {
        for round in 0..if cut == 0 { 1024 } else { 300 } {
            let page = if cut == 0 { round } else { random(&mut state, 1024) };
            buffer.fill(page as u8);
            ssd.write(Lpa(page), &buffer, TAG).expect("room");
        }
        ssd.cut_after_steps(random(&mut state, 2000), cut);
        for _ in 0..300 {
            let page = random(&mut state, 1024);
            buffer.fill(page as u8);
            if ssd.write(Lpa(page), &buffer, TAG).is_err() {
                break;
            }
        }
        ssd.power_cut(cut);
        ssd = ssd.restart().expect("whole");
        ssd.recover().expect("recovers");
        for page in 0..1024 {
            ssd.read(Lpa(page), &mut buffer, TAG).expect("reads");
            assert!(buffer.iter().all(|&byte| byte == page as u8), "cut {cut}: page {page}");
        }
    }
}

/// Several tasks under virtual time, each on its own lines and pages, with cleaning and collection going on.
#[test]
fn tasks_do_not_disturb_each_other() {
    for seed in 0..12 {
        let twice: Vec<String> =
            (0..2).map(|_| Sim::new(seed).run(|| many_tasks(seed, "mssd-pcie3"))).collect();
        assert_eq!(twice[0], twice[1], "seed {seed}: two runs differ");
    }
}

/// The same on real threads.
#[test]
fn threads_do_not_disturb_each_other() {
    for seed in 0..3 {
        many_tasks(seed, "free");
    }
}

fn many_tasks(seed: u64, name: &str) -> String {
    let ssd = Arc::new(Ssd::in_memory(&profile(name), 8 << 20));
    let tasks: Vec<_> = (0..4_u64)
        .map(|task| {
            let ssd = Arc::clone(&ssd);
            amphi_rt::task::spawn("writer", move || {
                let mut state = seed * 4 + task;
                // Shared pages 0..16 in stripes of 64 B; own pages beyond.
                let mut lines = vec![0_u8; 16 * 16];
                let mut pages = vec![0_u8; 100];
                for round in 0..400_u32 {
                    let value = (round % 251 + 1) as u8;
                    let slot = random(&mut state, 256) as usize;
                    let line = slot as u64 % 16 * 4 + task;
                    let at = Lpa(slot as u64 / 16).byte((line * 64) as usize);
                    let tx = TxId::new(round * 4 + task as u32 + 1).filter(|_| round % 2 == 0);
                    ssd.persist(at, &[value; 64], tx, TAG).expect("room");
                    if let Some(tx) = tx {
                        ssd.commit(tx).expect("commits");
                    }
                    lines[slot] = value;
                    let own = random(&mut state, 100);
                    let page = Lpa(100 + task * 100 + own);
                    ssd.write(page, &[value; 4096], TAG).expect("room");
                    pages[own as usize] = value;
                    let mut back = [0; 64];
                    ssd.load(at, &mut back, TAG).expect("loads");
                    assert_eq!(back, [value; 64], "task {task} round {round}");
                }
                (lines, pages)
            })
        })
        .collect();
    let kept: Vec<_> = tasks.into_iter().map(|task| task.join()).collect();
    ssd.clean_log().expect("cleans");
    let ssd = Arc::into_inner(ssd).expect("the only owner");
    ssd.power_cut(seed);
    let ssd = ssd.restart().expect("whole");
    ssd.recover().expect("recovers");
    let mut page = [0; 4096];
    for (task, (lines, pages)) in kept.iter().enumerate() {
        for (slot, &value) in lines.iter().enumerate() {
            ssd.read(Lpa(slot as u64 / 16), &mut page, TAG).expect("reads");
            let line = (slot % 16 * 4 + task) * 64;
            assert_eq!(page[line..line + 64], [value; 64], "task {task} slot {slot}");
        }
        for (own, &value) in pages.iter().enumerate() {
            ssd.read(Lpa(100 + task as u64 * 100 + own as u64), &mut page, TAG).expect("reads");
            assert_eq!(page, [value; 4096], "task {task} page {own}");
        }
    }
    let stats = ssd.stats();
    assert!(stats.log_cleanings > 0, "the log was never cleaned");
    format!("{} {}", amphi_rt::time::now_ns(), serde_json::to_string(&stats).expect("writes"))
}

/// Whole pages without a transaction, by nearly as many tasks as a region holds pages. Whoever finds others
/// faster, again and again, waits: a log is full for good only when nobody's store finds room.
#[test]
fn a_store_that_loses_its_turn_again_and_again_waits() {
    let schedule = Schedule::Random { per_mille: 200, delay_ns: 2_000_000 };
    Sim::explore(0..300).schedule(schedule).run(|| {
        let mut profile = profile("free");
        profile.log.region_bytes = 64 << 10;
        let ssd = Arc::new(Ssd::in_memory(&profile, 8 << 20));
        let tasks: Vec<_> = (0..8)
            .map(|task| {
                let ssd = Arc::clone(&ssd);
                amphi_rt::task::spawn("writer", move || {
                    for page in 0..60 {
                        ssd.persist(Lpa(page * 8 + task).byte(0), &[7; 4096], None, TAG).expect("room");
                    }
                })
            })
            .collect();
        tasks.into_iter().for_each(amphi_rt::task::JoinHandle::join);
    });
}

#[test]
fn a_log_full_of_open_transactions_says_so_and_recovers_from_it() {
    let ssd = Ssd::in_memory(&profile("free"), 8 << 20);
    let tx = TxId::new(1).expect("one");
    let mut stored = 0_u64;
    let refusal = loop {
        match ssd.persist(stored * 64, &[5; 64], Some(tx), TAG) {
            Ok(()) => stored += 1,
            Err(cause) => break cause,
        }
    };
    assert!(matches!(refusal, Error::NoSpace(_)), "{refusal}");
    assert!(stored > 900, "{stored} stores in regions for 1024");
    ssd.commit(tx).expect("commits");
    ssd.verify_read().expect("the refused store is gone");
    for _ in 0..3000 {
        ssd.persist(4 << 20, &[6; 64], None, TAG).expect("room");
    }
    let mut line = [0; 64];
    for at in 0..stored {
        ssd.load(at * 64, &mut line, TAG).expect("loads");
        assert_eq!(line, [5; 64]);
    }
}

#[test]
fn an_unreadable_page_is_an_error_of_its_own_readers_only() {
    let ssd = Ssd::in_memory(&profile("free"), 8 << 20);
    let mut page = [0; 4096];
    for lpa in 0..200 {
        ssd.write(Lpa(lpa), &[lpa as u8; 4096], TAG).expect("writes");
    }
    ssd.persist(Lpa(7).byte(128), &[1; 64], None, TAG).expect("stores need no flash");
    assert!(ssd.spoil(Lpa(7)) && !ssd.spoil(Lpa(500)));
    let unreadable = Err(Error::Media(Lpa(7)));
    assert_eq!(ssd.read(Lpa(7), &mut page, TAG), unreadable);
    assert_eq!(ssd.load(Lpa(7).byte(0), &mut page[..8], TAG), unreadable);
    ssd.load(Lpa(7).byte(130), &mut page[..8], TAG).expect("the log has these bytes");
    assert_eq!(page[..8], [1; 8]);
    // Cleaning and garbage collection go on around it, and carry both the damage and the log's bytes along.
    for round in 0..40_000_u64 {
        let lpa = 8 + round % 192;
        ssd.persist(Lpa(lpa).byte(0), &[lpa as u8; 64], None, TAG).expect("the log has room");
        ssd.write(Lpa(lpa), &[lpa as u8; 4096], TAG).expect("writes");
    }
    assert!(ssd.stats().log_cleanings > 10 && ssd.stats().gc_runs > 10);
    assert_eq!(ssd.read(Lpa(7), &mut page, TAG), unreadable);
    ssd.load(Lpa(7).byte(130), &mut page[..8], TAG).expect("the log still has these bytes");
    assert_eq!(page[..8], [1; 8]);
    ssd.recover().expect("one bad page is no reason to give up");
    ssd.load(Lpa(7).byte(130), &mut page[..8], TAG).expect("the log still has these bytes");
    assert_eq!(page[..8], [1; 8]);
    ssd.write(Lpa(7), &[9; 4096], TAG).expect("writes");
    ssd.read(Lpa(7), &mut page, TAG).expect("healed");
    assert_eq!(page, [9; 4096]);
    ssd.recover().expect("recovers");
}

/// The same seed, in two processes, to the byte.
#[test]
fn two_processes_agree() {
    if std::env::var("AMPHI_PRINT_RUN").is_ok() {
        println!("RUN {}", Sim::new(77).run(|| many_tasks(77, "mssd-pcie3")));
        return;
    }
    let run = || {
        let output = std::process::Command::new(std::env::current_exe().expect("this test"))
            .args(["pressure::two_processes_agree", "--exact", "--nocapture"])
            .env("AMPHI_PRINT_RUN", "1")
            .output()
            .expect("the child runs");
        let text = String::from_utf8(output.stdout).expect("text");
        text.lines().find(|line| line.contains("RUN ")).expect("the child printed its run").to_owned()
    };
    assert_eq!(run(), run());
}

#[test]
fn more_commits_than_the_transaction_log_holds() {
    let ssd = Ssd::in_memory(&profile("free"), 8 << 20);
    for number in 1..5000 {
        let tx = TxId::new(number).expect("not zero");
        if number % 3 > 0 {
            ssd.persist(u64::from(number % 50) * 8, &number.to_le_bytes(), Some(tx), TAG).expect("room");
        }
        ssd.commit(tx).expect("commits");
        if number % 1000 == 999 {
            assert_eq!(ssd.commit(tx), Err(Error::AlreadyCommitted(tx)));
        }
    }
    assert!(ssd.stats().txlog_used <= 1024);
}

#[test]
fn malformed_commands_are_refused_and_change_nothing() {
    let ssd = Ssd::in_memory(&profile("free"), 8 << 20);
    let mut page = [0; 4096];
    let out = |outcome: amphi_device::Result<()>| matches!(outcome, Err(Error::OutOfRange { .. }));
    let odd = |outcome: amphi_device::Result<()>| matches!(outcome, Err(Error::Misaligned { .. }));
    assert!(out(ssd.read(Lpa(2048), &mut page, TAG)));
    assert!(out(ssd.read(Lpa(u64::MAX), &mut page, TAG)));
    assert!(out(ssd.write(Lpa(2047), &[1; 8192], TAG)));
    assert!(odd(ssd.write(Lpa(0), &[1; 100], TAG)));
    assert!(odd(ssd.write(Lpa(0), &[], TAG)));
    assert!(odd(ssd.submit_write(Lpa(0), &[], TAG).map(|_| ())));
    assert!(out(ssd.trim(Lpa(2000), u64::MAX)));
    assert!(out(ssd.load((8 << 20) - 4, &mut page[..8], TAG)));
    assert!(out(ssd.load(u64::MAX, &mut page[..8], TAG)));
    assert!(out(ssd.store((8 << 20) - 4, &[1; 8], None, TAG)));
    assert!(odd(ssd.store(4090, &[1; 8], None, TAG)));
    ssd.flush_lines(u64::MAX - 3, 100);
    ssd.flush_lines(0, 0);
    ssd.store(5, &[], None, TAG).expect("nothing to do");
    ssd.read(Lpa(0), &mut page, TAG).expect("reads");
    assert_eq!(page, [0; 4096]);
    let fork = ssd.fork().expect("copied");
    fork.write(Lpa(0), &[9; 4096], TAG).expect("writes");
    ssd.read(Lpa(0), &mut page, TAG).expect("reads");
    assert_eq!(page, [0; 4096], "a fork is its own device");
}
