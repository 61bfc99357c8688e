//! AugeFS in the laboratory: all sequences of one operation, and samples of everything else. Bugs are planted
//! in it by tests of its own.

mod sample;

use amphi_crashlab::{Bound, Kind, Session, subject};
use sample::{long, run};

fn session() -> Session {
    Session::new(subject::named("augefs").expect("the subject exists"), "free").expect("it can be made")
}

#[test]
fn all_sequences_of_one_operation() {
    let tally = run(&session(), Kind::Seq1, 0..435, Bound { recovery: 1, ..Bound::BRISK });
    assert_eq!(tally.workloads, 435);
}

#[test]
fn sequences_of_two_operations_and_what_the_published_ones_lack() {
    let session = session();
    let step = (16_007 / long()) as usize;
    run(&session, Kind::Seq2, (0..466_382).step_by(step), Bound { recovery: 1, ..Bound::BRISK });
    let count = session.count(Kind::Extra1).expect("they are numbered");
    run(&session, Kind::Extra1, (0..count).step_by(7), Bound { recovery: 1, ..Bound::BRISK });
}

#[test]
fn two_operations_at_a_time() {
    run(&session(), Kind::Pairs, 0..20 * long(), Bound { recovery: 1, ..Bound::BRISK });
}

#[test]
fn long_runs() {
    run(&session(), Kind::Random, 0..long(), Bound { one_point_in: 12, recovery: 1, ..Bound::LINEAR });
}

/// The power fails at every step of a recovery that finds more blocks than an inode counts: the checkpoint
/// that ended it once came before the count.
#[test]
fn a_recovery_that_is_cut_off_counts_blocks_again() {
    run(&session(), Kind::Seq2, std::iter::once(56_588), Bound::EXHAUSTIVE);
}
