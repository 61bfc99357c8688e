//! Running a sample of the workloads: what every file system's tests do.

use std::sync::Arc;

use amphi_crashlab::{Bound, Kind, Known, Looking, Session, Tally, WorkloadId};

/// How many times as large samples are: ten with `AMPHI_TEST_LONG`.
pub fn long() -> u64 {
    if std::env::var_os("AMPHI_TEST_LONG").is_some() { 10 } else { 1 }
}

/// Runs workloads and fails with every violation's ID.
pub fn run(session: &Session, kind: Kind, numbers: impl Iterator<Item = u64>, bound: Bound) -> Tally {
    let looking = Looking { bound, only: None, most_violations: 2, record: false };
    let mut tally = Tally::default();
    let mut wrong = Vec::new();
    let (mut known, mut family_ends) = (Arc::new(Known::default()), 0);
    for number in numbers {
        if number >= family_ends {
            (known, family_ends) = (Arc::default(), session.after_family(kind, number));
        }
        let outcome = session.run_beyond(&known, WorkloadId::new(kind, number), &looking);
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
