//! Each processor fills a piece of the write log of its own: what is newer does not lie behind what is older,
//! and pieces end with the region they are of.

use amphi_device::{BytePort, BytePortExt, Error, Structure, TxId, WriteLog};
use amphi_rt::task;
use amphi_ssd::{Profile, Ssd};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::Arc;

const TAG: Structure = Structure::Data;

fn device() -> Ssd {
    Ssd::in_memory(&Profile::named("free").expect("built in"), 32 << 20)
}

fn byte_at(ssd: &Ssd, at: u64) -> u8 {
    let mut byte = [0];
    ssd.load(at, &mut byte, TAG).expect("loads");
    byte[0]
}

/// What is stored after `RECOVER` has emptied the region that a piece was of lies where a power-up looks.
#[test]
fn a_piece_does_not_outlive_its_region() {
    let ssd = device();
    for stamp in 1..=3_u8 {
        ssd.persist(0, &[stamp; 64], None, TAG).expect("stores");
        ssd.recover().expect("recovers");
        assert_eq!(ssd.stats().log_used, 0);
        ssd.persist(4096, &[stamp; 64], None, TAG).expect("stores");
        ssd.clean_log().expect("cleans");
        ssd.persist(8192, &[stamp; 64], None, TAG).expect("stores");
    }
    ssd.power_cut(1);
    let ssd = ssd.restart().expect("powers up");
    assert_eq!([0, 4096, 8192].map(|at| byte_at(&ssd, at)), [3; 3]);
}

/// Two processors take turns at one line: the first one's later stores lie before the second one's earlier
/// ones.
#[test]
fn the_newest_store_counts_wherever_it_lies() {
    let allowed = sched_getaffinity(None).expect("Linux says");
    let mut processors = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).map(|cpu| {
        let mut one = CpuSet::new();
        one.set(cpu);
        one
    });
    let first = processors.next().expect("there is one");
    let second = processors.next().unwrap_or(first);
    for stores in 1..=9_u8 {
        let ssd = Arc::new(device());
        for stamp in 1..=stores {
            let (ssd, processor) = (Arc::clone(&ssd), if stamp % 2 == 1 { first } else { second });
            let storing = task::spawn("store", move || {
                sched_setaffinity(None, &processor).expect("it may be used");
                ssd.persist(128, &[stamp; 64], None, TAG).expect("stores");
                ssd.persist(4096 * u64::from(stamp), &[stamp; 64], None, TAG).expect("stores");
            });
            storing.join();
        }
        let ssd = Arc::into_inner(ssd).expect("nobody else has it");
        ssd.power_cut(1);
        let ssd = ssd.restart().expect("powers up");
        assert_eq!(byte_at(&ssd, 128), stores);
        for stamp in 1..=stores {
            assert_eq!(byte_at(&ssd, 4096 * u64::from(stamp)), stamp);
        }
        ssd.clean_log().expect("cleans");
        assert_eq!(byte_at(&ssd, 128), stores, "in flash too");
    }
}

/// What a processor takes ahead is small, and a store of more than a part of it goes without.
#[test]
fn a_piece_is_a_page() {
    let ssd = device();
    let mut used = Vec::new();
    for page in 0..40 {
        ssd.persist(page * 4096, &[7; 64], None, TAG).expect("stores");
        used.push(ssd.stats().log_used);
    }
    used.dedup();
    // Unless this thread moves, two pieces hold the 40 entries of 128 B.
    assert!(used.iter().all(|used| used % 4096 == 0) && used.len() <= 4, "{used:?}");
    let before = ssd.stats().log_used;
    ssd.persist(1 << 20, &[7; 4096], None, TAG).expect("stores");
    assert_eq!(ssd.stats().log_used - before, 4096 + 64);
}

/// Processors commit in slots of their own: all commits count after a power cut.
#[test]
fn commits_count_wherever_they_lie() {
    let mut profile = Profile::named("free").expect("built in");
    // 1024 slots.
    profile.log.txlog_bytes = 4096;
    let ssd = Ssd::in_memory(&profile, 32 << 20);
    let tx = |number: u32| TxId::new(number).expect("not zero");
    let store = |ssd: &Ssd, number: u32| {
        ssd.persist(u64::from(number) * 64, &[number as u8 | 1; 64], Some(tx(number)), TAG).expect("stores");
        ssd.commit(tx(number)).expect("commits");
    };
    // Once round, and a few more.
    (1..=1030).for_each(|number| {
        store(&ssd, number);
        if number % 200 == 0 {
            ssd.clean_log().expect("cleans");
            assert_eq!(ssd.stats().txlog_used, 0);
        }
    });
    ssd.power_cut(1);
    let ssd = ssd.restart().expect("powers up");
    (1..=1030_u32).for_each(|number| assert_eq!(byte_at(&ssd, u64::from(number) * 64), number as u8 | 1));
    assert!(matches!(ssd.commit(tx(1030)), Err(Error::AlreadyCommitted(_))));
    let report = ssd.recover().expect("recovers");
    assert_eq!(report.transactions, 30, "{report:?}");
}

#[test]
fn slots_that_were_taken_and_not_used_are_empty_after_a_power_cut() {
    let mut profile = Profile::named("free").expect("built in");
    profile.log.txlog_bytes = 4096;
    let tx = |number: u32| TxId::new(number).expect("not zero");
    for more in 1..=16 {
        let ssd = Ssd::in_memory(&profile, 32 << 20);
        (1..=1024 + more).for_each(|number| {
            ssd.commit(tx(number)).expect("commits");
            if number % 400 == 0 {
                ssd.clean_log().expect("cleans");
            }
        });
        ssd.power_cut(1);
        let ssd = ssd.restart().expect("powers up");
        let again = (1..=64).filter(|&number| ssd.commit(tx(number)).is_ok()).count();
        assert_eq!(again, 64, "none of the numbers of the first round counts");
    }
}
