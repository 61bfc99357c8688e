//! Every file system on devices that fail a command, another one each time.

mod formatted;
mod interrupted;
mod logs;
mod maintained;
mod others;
mod wal;

use std::sync::Arc;

use amphi_crashlab::subject::Subject;
use amphi_crashlab::{Bound, Kind, Looking, Session, Tally, Violation, WorkloadId, subject};
use amphi_names::planted::{Bug, plant};

/// How many times as large samples are.
fn long() -> u64 {
    if std::env::var_os("AMPHI_TEST_LONG").is_some() { 10 } else { 1 }
}

fn session(name: &str) -> Session {
    Session::new(subject::named(name).expect("the subject exists"), "free").expect("it can be made")
}

/// Runs workloads, one command in `every` failing in turn, until a few violations are found.
fn fail(
    session: &Session,
    kind: Kind,
    numbers: impl Iterator<Item = u64>,
    every: u64,
) -> (Tally, Vec<Violation>) {
    let one_point_in = if kind == Kind::Random { 40 } else { 1 };
    let bound = Bound { recovery: 1, one_point_in, ..Bound::LINEAR };
    let looking = Looking { bound, only: None, most_violations: 2, record: false };
    let (mut tally, mut violations) = (Tally::default(), Vec::new());
    for number in numbers {
        let id = WorkloadId::new(kind, number);
        let (some, wrong) = session.run_failing(&Arc::default(), id, &looking, every);
        tally.add(&some);
        violations.extend(wrong);
        if violations.len() > 4 {
            break;
        }
    }
    (tally, violations)
}

/// What was wrong, with the commands that replay it.
fn wrong(name: &str, (tally, violations): (Tally, Vec<Violation>)) -> Vec<String> {
    println!("{name}: {tally:?}");
    if tally.failures == 0 {
        return vec![format!("{name}: nothing has failed: {tally:?}")];
    }
    let replay = |violation: &Violation| {
        format!("amphi crash replay '{}': {}: {}", violation.id, violation.operation, violation.what)
    };
    violations.iter().map(replay).collect()
}

fn nothing_is_wrong(wrong: &[String]) {
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_command_of_a_few_sequences() {
    let of_subject = |subject: &Subject| {
        let session = session(subject.name);
        let step = (29 / long()).max(1) as usize;
        let mut found = wrong(subject.name, fail(&session, Kind::Seq1, (5..435).step_by(step), 1));
        let count = session.count(Kind::Extra1).expect("they are numbered");
        let step = (97 / long()) as usize;
        found.extend(wrong(subject.name, fail(&session, Kind::Extra1, (3..count).step_by(step), 1)));
        found
    };
    nothing_is_wrong(&subject::ALL.iter().flat_map(of_subject).collect::<Vec<_>>());
}

#[test]
fn some_commands_of_long_runs() {
    let of_subject = |subject: &Subject| {
        let failed = fail(&session(subject.name), Kind::Random, 44..44 + long(), 23);
        wrong(subject.name, failed)
    };
    nothing_is_wrong(&subject::ALL.iter().flat_map(of_subject).collect::<Vec<_>>());
}

/// Each was a loss of data, or a lie, that this laboratory found.
#[test]
fn what_was_wrong_once() {
    for (name, kind, number, every) in [
        // A leaf of a file's map that could not be read was taken for holes.
        ("devfs", Kind::Seq1, 12, 1),
        // A directory went on with a page that it had given back.
        ("devfs", Kind::Seq1, 6, 1),
        // The older manifest was taken for the newer one, which could not be read.
        ("augefs", Kind::Seq1, 6, 1),
        // A directory's times moved for a name that could not be removed.
        ("augefs", Kind::Seq2, 60_070, 1),
        // A file was cut in memory alone.
        ("ext4like", Kind::Seq1, 411, 1),
        // Pages that could not be written left memory, and old bytes of the device were read.
        ("ext4like", Kind::Seq1, 34, 1),
        // What a failed `create` had left in memory was called damage.
        ("bytefs", Kind::Seq1, 5, 1),
        // Whoever read was told that nothing can be written any more.
        ("augefs", Kind::Extra1, 488, 1),
        // So was who looked at a log whose time had to be written.
        ("ext4like-pins", Kind::Random, 44, 23),
        // A log that could not be flushed could not be read either, until the next mount.
        ("ext4like-pins", Kind::Random, 1, 9),
        // Pages stayed pinned by a pin that the device had reported as failed.
        ("ext4like-pins", Kind::Random, 3, 15),
    ] {
        nothing_is_wrong(&wrong(name, fail(&session(name), kind, std::iter::once(number), every)));
    }
}

#[test]
fn a_file_system_that_forgets_a_failure_is_found() {
    // RomeFS has its metadata in memory that does not fail.
    for subject in subject::ALL.iter().filter(|subject| !subject.name.starts_with("romefs")) {
        let session = session(subject.name);
        plant(Some(Bug::FailureForgotten));
        let (tally, violations) = fail(&session, Kind::Seq1, (0..435).step_by(7), 1);
        plant(None);
        assert!(!violations.is_empty(), "{}: {tally:?}", subject.name);
    }
}
