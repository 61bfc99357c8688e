//! The laboratory can fail: bugs planted in the device, the firmware and ByteFS, each found by a small part of the workloads that continuous integration
//! runs, in a report that names the right operation. The same workloads find nothing where nothing is planted.

use amphi_crashlab::{Bound, CrashId, Kind, Looking, Session, Violation, WorkloadId, session, subject};
use amphi_fs_bytefs::planted::{self as in_bytefs, Bug as InByteFs};
use amphi_ssd::planted::{self as in_ssd, Bug as InSsd};

/// A bug of one of the crates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    Ssd(InSsd),
    ByteFs(InByteFs),
}

fn plant(bug: Option<Bug>) {
    in_ssd::plant(match bug {
        Some(Bug::Ssd(bug)) => Some(bug),
        _ => None,
    });
    in_bytefs::plant(match bug {
        Some(Bug::ByteFs(bug)) => Some(bug),
        _ => None,
    });
}

/// Looks at workloads from `first` on until one shows something wrong.
fn find(session: &Session, kind: Kind, numbers: impl Iterator<Item = u64>) -> Option<Violation> {
    let looking = Looking { bound: Bound::BRISK, only: None, most_violations: 1, record: false };
    numbers
        .map(|number| session.run(WorkloadId { kind, number }, &looking))
        .find_map(|outcome| outcome.violations.into_iter().next())
}

/// Prints where each bug is found first: how the table in `EXPECTED` is made.
#[test]
#[ignore = "a search of minutes, for whoever adds a bug"]
fn survey() {
    let wanted = std::env::var("AMPHI_BUG").unwrap_or_default();
    let all = in_ssd::BUGS.into_iter().map(Bug::Ssd).chain(in_bytefs::BUGS.into_iter().map(Bug::ByteFs));
    for bug in all.filter(|bug| format!("{bug:?}").contains(&wanted)) {
        plant(None);
        let session = Session::new(subject::named("bytefs").expect("known"), "free").expect("possible");
        plant(Some(bug));
        let stages: [(Kind, u64, u64); 4] =
            [(Kind::Seq1, 435, 1), (Kind::Extra1, 330, 1), (Kind::Seq2, 466_382, 997), (Kind::Random, 5, 1)];
        let found = stages
            .into_iter()
            .find_map(|(kind, count, step)| find(&session, kind, (0..count).step_by(step as usize)));
        plant(None);
        match found {
            Some(violation) => {
                println!("{bug:?}: {} [{}] {}", violation.id, violation.operation, violation.what)
            }
            None => println!("{bug:?}: NOT FOUND"),
        }
    }
}

fn replayed(session: &Session, id: &CrashId) -> Option<Violation> {
    session::replay(session, id).violations.into_iter().next()
}
