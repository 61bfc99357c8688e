//! RomeFS in the laboratory: all sequences of one operation, samples of everything else, and bugs planted in
//! it, each found.

use std::sync::Arc;

use amphi_crashlab::{Bound, Kind, Known, Looking, Session, Tally, WorkloadId, subject};

fn session() -> Session {
    Session::new(subject::named("romefs").expect("the subject exists"), "free").expect("it can be made")
}

/// Runs workloads and fails with every violation's ID.
fn run(session: &Session, kind: Kind, numbers: impl Iterator<Item = u64>, bound: Bound) -> Tally {
    let looking = Looking { bound, only: None, most_violations: 2, record: false };
    let mut tally = Tally::default();
    let mut wrong = Vec::new();
    let (mut known, mut family_ends) = (Arc::new(Known::default()), 0);
    for number in numbers {
        if number >= family_ends {
            (known, family_ends) = (Arc::default(), session.after_family(kind, number));
        }
        let outcome = session.run_beyond(&known, WorkloadId { kind, number }, &looking);
        tally.add(&outcome.tally);
        wrong.extend(outcome.violations.into_iter().map(|violation| {
            format!("amphi crash replay '{}': {}: {}", violation.id, violation.operation, violation.what)
        }));
        assert!(wrong.len() < 10, "{}", wrong.join("\n"));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(tally.points > 0 && tally.distinct > 0, "nothing was looked at: {tally:?}");
    println!("{kind}: {tally:?}");
    tally
}

#[test]
fn all_sequences_of_one_operation() {
    let tally = run(&session(), Kind::Seq1, 0..435, Bound { recovery: 1, ..Bound::BRISK });
    assert_eq!(tally.workloads, 435);
}
