//! The ext4-like file system with pins in the laboratory: each file is a log from its first sync on, in parts
//! that are pinned and flushed (2B-SSD §IV).

mod sample;

use amphi_crashlab::{Bound, Kind, Session, subject};
use sample::{long, run};

fn session() -> Session {
    Session::new(subject::named("ext4like-pins").expect("the subject exists"), "free")
        .expect("it can be made")
}

#[test]
fn all_sequences_of_one_operation() {
    let tally = run(&session(), Kind::Seq1, 0..435, Bound { recovery: 1, ..Bound::BRISK });
    assert_eq!(tally.workloads, 435);
}

#[test]
fn sequences_of_two_operations() {
    let step = (4001 / long()) as usize;
    run(&session(), Kind::Seq2, (0..466_382).step_by(step), Bound { recovery: 1, ..Bound::BRISK });
}

/// Those of 27 and 94 once lost what had been synced to pages that were reserved only, and to a log that had
/// been cut before its first sync.
#[test]
fn long_runs() {
    let session = session();
    for number in [27, 94] {
        run(&session, Kind::Random, number..number + 1, Bound { one_point_in: 2, ..Bound::LINEAR });
    }
    run(&session, Kind::Random, 0..3 * long(), Bound { one_point_in: 6, ..Bound::LINEAR });
}
