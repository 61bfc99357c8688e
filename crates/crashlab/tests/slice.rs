//! The part of the laboratory's work that continuous integration does: all sequences of one operation, and
//! samples of everything else. `AMPHI_TEST_LONG=1` makes the samples ten times as large; everything there is,
//! is a matter of `amphi crash run` (docs/crashlab.md).

mod sample;

use amphi_crashlab::{Bound, CrashId, Kind, Session, days, session, subject};
use sample::{long, run};

fn session_on(profile: &str, name: &str) -> Session {
    Session::new(subject::named(name).expect("the subject exists"), profile).expect("it can be made")
}

/// What is looked at most closely: ByteFS as it is used.
const USUAL: [&str; 2] = ["bytefs", "bytefs-journal"];

/// The baseline without pins, which have tests of their own (`pins.rs`).
const EXT4LIKE: [&str; 2] = ["ext4like", "ext4like-journal"];

/// Metadata that is durable later.
const GROUPED: &str = "bytefs-grouped";

fn every(step: u64, count: u64) -> impl Iterator<Item = u64> {
    (0..count).step_by((step / long()).max(1) as usize)
}

#[test]
fn the_smallest_file_system() {
    let session = session_on("free", "toy");
    run(&session, Kind::Seq1, 0..435, Bound::BRISK);
    run(&session, Kind::Seq2, (0..466_382).step_by(8009), Bound::BRISK);
    run(&session, Kind::Pairs, 0..30 * long(), Bound::BRISK);
    run(&session, Kind::Random, 0..1, Bound { one_point_in: 6, ..Bound::LINEAR });
}

#[test]
fn all_sequences_of_one_operation() {
    for name in subject::of(subject::Kind::Bytefs).filter(|name| *name != GROUPED) {
        let session = session_on("free", name);
        // Of the paper's variants, whose mechanisms are the same or simpler, a little less.
        let bound = if USUAL.contains(&name) { Bound::BRISK } else { Bound { recovery: 1, ..Bound::BRISK } };
        let tally = run(&session, Kind::Seq1, 0..435, bound);
        assert_eq!(tally.workloads, 435);
        // Of every family's syncs, at least the one that has nothing to do is known already.
        assert!(tally.repeated * 3 > tally.points, "{tally:?}");
    }
}

#[test]
fn transactions_that_are_grouped() {
    let session = session_on("free", GROUPED);
    let brisk = Bound { recovery: 1, ..Bound::BRISK };
    run(&session, Kind::Seq1, every(5, 435), brisk);
    run(&session, Kind::Seq2, every(30_011, 466_382), brisk);
    let count = session.count(Kind::Extra1).expect("they are numbered");
    run(&session, Kind::Extra1, every(7, count), brisk);
    run(&session, Kind::Random, 0..long(), Bound { one_point_in: 24, ..Bound::LINEAR });
}

#[test]
fn every_step_of_recovery_after_a_few_sequences() {
    let session = session_on("free", "bytefs");
    run(&session, Kind::Seq1, every(29, 435), Bound { recovery: usize::MAX, ..Bound::BRISK });
}

#[test]
fn what_the_published_sequences_lack() {
    let session = session_on("free", "bytefs");
    let count = session.count(Kind::Extra1).expect("they are numbered");
    run(&session, Kind::Extra1, every(3, count), Bound::BRISK);
    let count = session.count(Kind::Extra2).expect("they are numbered");
    run(&session, Kind::Extra2, every(1999, count), Bound::BRISK);
}

#[test]
fn sequences_of_two_and_three_operations() {
    for name in USUAL {
        let session = session_on("free", name);
        run(&session, Kind::Seq2, every(3001, 466_382), Bound::BRISK);
        run(&session, Kind::Seq3, 0..30 * long(), Bound::BRISK);
    }
}

#[test]
fn two_operations_at_a_time() {
    let session = session_on("free", "bytefs");
    run(&session, Kind::Pairs, 0..60 * long(), Bound::BRISK);
}

#[test]
fn long_runs_with_the_log_cleaned_and_flash_collected() {
    for name in USUAL {
        let session = session_on("free", name);
        run(&session, Kind::Random, 0..3 * long(), Bound { one_point_in: 6, ..Bound::LINEAR });
    }
}

#[test]
fn a_device_whose_fences_make_stores_durable() {
    let session = session_on("mssd-cxl", "bytefs");
    run(&session, Kind::Seq1, every(7, 435), Bound::BRISK);
}

#[test]
fn a_device_whose_write_buffer_is_volatile() {
    for name in USUAL {
        let session = session_on("nvme", name);
        run(&session, Kind::Seq1, every(5, 435), Bound::BRISK);
        run(&session, Kind::Seq2, every(10_007, 466_382), Bound::BRISK);
        run(&session, Kind::Random, 0..long(), Bound { one_point_in: 12, ..Bound::LINEAR });
    }
    for name in EXT4LIKE {
        let session = session_on("nvme", name);
        run(&session, Kind::Seq1, every(15, 435), Bound::BRISK);
    }
}

#[test]
fn the_ext4_like_file_system() {
    for name in EXT4LIKE {
        let session = session_on("free", name);
        run(&session, Kind::Seq1, every(5, 435), Bound::BRISK);
        run(&session, Kind::Seq2, every(30_011, 466_382), Bound::BRISK);
        // In two of them a file gets its first name and `fdatasync`, which once did not bring the name.
        run(&session, Kind::Seq3, [5300, 6357].into_iter().chain(0..4 * long()), Bound::BRISK);
        run(&session, Kind::Random, 0..long(), Bound { one_point_in: 24, ..Bound::LINEAR });
    }
}

#[test]
fn half_an_hour_with_a_power_cut_every_minute() {
    for name in USUAL {
        let subject = subject::named(name).expect("the subject exists");
        let days = days::run(subject, "mssd-pcie3", 1, 30 * long(), &|_minute| {}).expect("it can be run");
        assert_eq!(days.violation, None, "amphi crash run --fs {name} --workload days --seed 1");
        assert!(days.log_cleanings > 0 && days.interrupted > 10, "{days:?}");
    }
}

/// The crash that an ID names finds nothing wrong any more, and still happens.
fn is_mended(id: &str) {
    let id: CrashId = id.parse().expect("a valid ID");
    let outcome = session::replay(&session_on("free", &id.subject), &id);
    assert_eq!(outcome.violations, []);
    assert_eq!(outcome.tally.points, 1, "the crash point exists");
}

#[test]
fn a_growing_truncate_is_all_or_nothing() {
    is_mended("bytefs/seq1-415@3:none");
    is_mended("bytefs/seq1-434@3:none");
    is_mended("bytefs-journal/seq1-411@3:none");
}
