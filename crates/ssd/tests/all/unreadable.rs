//! Pages that flash cannot give any more while the log still has bytes of them: they hold nothing else up,
//! and no committed byte is lost.

use amphi_device::{BlockPort, BytePort, BytePortExt, Error, Lpa, Structure, TxId, WriteLog};
use amphi_ssd::{Profile, Ssd};

const TAG: Structure = Structure::Other;
/// The page that is spoiled.
const BAD: Lpa = Lpa(7);

/// A device with a log of 1024 entries of a line in each region, and as many commits.
fn device() -> Ssd {
    let mut profile = Profile::named("free").expect("built in");
    profile.log.region_bytes = 96 << 10;
    profile.log.txlog_bytes = 4 << 10;
    let ssd = Ssd::in_memory(&profile, 8 << 20);
    for lpa in 0..50 {
        ssd.write(Lpa(lpa), &[lpa as u8; 4096], TAG).expect("writes");
    }
    ssd
}

fn tx(number: u32) -> TxId {
    TxId::new(number).expect("not zero")
}

fn bytes(ssd: &Ssd, at: u64, len: usize) -> Vec<u8> {
    let mut found = vec![0; len];
    ssd.load(at, &mut found, TAG).expect("the log has these bytes");
    found
}

/// Stores around the bad page until the log has been cleaned several times.
fn clean_often(ssd: &Ssd, from: u32) {
    let before = ssd.stats().log_cleanings;
    for number in from..from + 5000 {
        ssd.persist(Lpa(u64::from(8 + number % 40)).byte(64), &[1; 64], Some(tx(number)), TAG).expect("room");
        ssd.commit(tx(number)).expect("there is room for commits");
    }
    assert!(ssd.stats().log_cleanings > before + 3);
}

#[test]
fn commits_of_an_unreadable_page_do_not_fill_the_transaction_log() {
    let ssd = device();
    ssd.persist(BAD.byte(128), &[2; 64], Some(tx(1)), TAG).expect("room");
    ssd.commit(tx(1)).expect("commits");
    assert!(ssd.spoil(BAD));
    clean_often(&ssd, 2);
    assert_eq!(bytes(&ssd, BAD.byte(128), 64), [2; 64]);
    assert_eq!(ssd.load(BAD.byte(0), &mut [0; 8], TAG), Err(Error::Media(BAD)));
}

#[test]
fn recovery_keeps_what_the_log_has_of_an_unreadable_page() {
    for cleaned_before in [false, true] {
        let ssd = device();
        // Old to new: a plain store, two overlapping ones of a transaction, one within them, one that is
        // never committed.
        ssd.persist(BAD.byte(0), &[1; 256], None, TAG).expect("room");
        ssd.persist(BAD.byte(64), &[2; 128], Some(tx(1)), TAG).expect("room");
        ssd.persist(BAD.byte(128), &[3; 128], Some(tx(1)), TAG).expect("room");
        ssd.persist(BAD.byte(64), &[4; 64], None, TAG).expect("room");
        ssd.commit(tx(1)).expect("commits");
        ssd.persist(BAD.byte(192), &[5; 8], None, TAG).expect("room");
        ssd.persist(BAD.byte(0), &[6; 64], Some(tx(2)), TAG).expect("room");
        assert!(ssd.spoil(BAD));
        if cleaned_before {
            clean_often(&ssd, 3);
        }
        ssd.power_cut(1);
        let ssd = ssd.restart().expect("powers up");
        ssd.recover().expect("one bad page is no reason to give up");
        let check = |ssd: &Ssd| {
            let expected = [[1; 64], [2; 64], [3; 64], [3; 64]].concat();
            let found = bytes(ssd, BAD.byte(0), 256);
            assert_eq!(found[..192], expected[..192]);
            assert_eq!((&found[192..200], &found[200..]), (&[5; 8][..], &expected[200..]));
            assert_eq!(ssd.load(BAD.byte(256), &mut [0; 8], TAG), Err(Error::Media(BAD)));
        };
        check(&ssd);
        // Transaction numbers begin again.
        for number in 1..4 {
            ssd.persist(Lpa(20).byte(0), &[9; 64], Some(tx(number)), TAG).expect("room");
            ssd.commit(tx(number)).expect("no earlier transaction has this number");
        }
        clean_often(&ssd, 4);
        check(&ssd);
        // Again, with nothing but what was kept, and cut at some of its steps.
        let mut ssd = ssd;
        for steps in 0..20 {
            ssd.power_cut(steps);
            ssd = ssd.restart().expect("powers up");
            ssd.cut_after_steps(steps, steps);
            let outcome = ssd.recover();
            if !ssd.has_power() {
                ssd = ssd.restart().expect("powers up");
                ssd.recover().expect("what was interrupted is done again");
            } else {
                outcome.expect("recovers");
            }
            check(&ssd);
        }
        // The last cut may still be to come.
        ssd.power_cut(0);
        ssd = ssd.restart().expect("powers up");
        ssd.recover().expect("recovers");
        check(&ssd);
        ssd.write(BAD, &[8; 4096], TAG).expect("writes");
        assert_eq!(bytes(&ssd, BAD.byte(0), 4096), [8; 4096], "a new page heals");
    }
}

#[test]
fn what_was_committed_after_a_merge_is_not_taken_for_merged() {
    let mut ssd = device();
    ssd.persist(BAD.byte(0), &[2; 64], Some(tx(1)), TAG).expect("room");
    ssd.persist(BAD.byte(512), &[1; 64], None, TAG).expect("room");
    ssd.clean_log().expect("cleans");
    ssd.commit(tx(1)).expect("commits");
    assert!(ssd.spoil(BAD));
    for _ in 0..2 {
        ssd.power_cut(1);
        ssd = ssd.restart().expect("powers up");
        ssd.recover().expect("recovers");
        assert_eq!(bytes(&ssd, BAD.byte(0), 64), [2; 64]);
    }
}
