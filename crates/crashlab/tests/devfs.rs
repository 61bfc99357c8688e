//! DevFS in the laboratory, with capacitors and with a journal on flash: all sequences of one operation, and
//! samples of everything else, and bugs planted on purpose.

mod sample;

use amphi_crashlab::{Bound, Kind, Looking, Session, WorkloadId, subject};
use amphi_fs_devfs::planted::{BUGS, Bug, plant};
use amphi_trace::Operation;
use sample::{long, run};

fn session(name: &str) -> Session {
    Session::new(subject::named(name).expect("the subject exists"), "free").expect("it can be made")
}

#[test]
fn all_sequences_of_one_operation() {
    for name in ["devfs", "devfs-naive"] {
        let tally = run(&session(name), Kind::Seq1, 0..435, Bound { recovery: 1, ..Bound::BRISK });
        assert_eq!(tally.workloads, 435);
    }
}

#[test]
fn sequences_of_two_operations_and_what_the_published_ones_lack() {
    let session = session("devfs");
    let step = (16_007 / long()) as usize;
    run(&session, Kind::Seq2, (0..466_382).step_by(step), Bound { recovery: 1, ..Bound::BRISK });
    let count = session.count(Kind::Extra1).expect("they are numbered");
    run(&session, Kind::Extra1, (0..count).step_by(7), Bound { recovery: 1, ..Bound::BRISK });
}

#[test]
fn two_operations_at_a_time() {
    run(&session("devfs"), Kind::Pairs, 0..20 * long(), Bound { recovery: 1, ..Bound::BRISK });
}

#[test]
fn long_runs() {
    run(&session("devfs"), Kind::Random, 0..long(), Bound { one_point_in: 12, recovery: 1, ..Bound::LINEAR });
}

const CREATE: &str = "create foo";
const TWO: &str = "create foo\ncreate bar";
const REMOVE: &str = "create foo\nunlink foo";
const PART: &str = "create foo\nwrite foo 0 100";
const OVER_PART: &str = "create foo\nwrite foo 0 4096\nwrite foo 100 50\nwrite foo 0 4096";
const CUT: &str = "create foo\nwrite foo 0 12288\ntruncate foo 4096";
const REPLACE: &str = "create foo\ncreate bar\nwrite bar 0 100\nrename foo bar";
const TAIL: &str = "create foo\nwrite foo 0 4096\ntruncate foo 100\ntruncate foo 4096";

/// `before`, then so many names in the root that its journal is emptied.
fn filled(before: &str) -> String {
    let names: Vec<_> = (0..20).map(|number| format!("create name{number}")).collect();
    format!("{before}{}", names.join("\n"))
}

/// The first thing that is wrong with a script, run with a bug.
fn find(script: &str, bug: Option<Bug>) -> Option<String> {
    let operations: Vec<Operation> = script.lines().map(|line| line.parse().expect("an operation")).collect();
    let session = session("devfs").with_trace(operations).expect("it is short");
    let bound = Bound { recovery: 24, ..Bound::BRISK };
    let looking = Looking { bound, only: None, most_violations: 1, record: false };
    let id = WorkloadId::new(Kind::Trace, 0);
    // What is made is sound.
    if bug.is_some() {
        plant(bug);
    }
    let tally = session.run(id, &looking);
    plant(None);
    let violation = tally.violations.into_iter().next()?;
    Some(format!("{}: {}", violation.operation, violation.what))
}

#[test]
fn power_may_fail_again_at_each_step_of_bringing_in_place() {
    for name in ["devfs", "devfs-naive"] {
        for script in [&filled("") as &str, PART, OVER_PART, TAIL, CUT, REPLACE, REMOVE] {
            let operations = script.lines().map(|line| line.parse().expect("an operation")).collect();
            let session = session(name).with_trace(operations).expect("it is short");
            let bound = Bound { recovery: usize::MAX, ..Bound::LINEAR };
            let looking = Looking { bound, only: None, most_violations: 1, record: false };
            let tally = session.run(WorkloadId::new(Kind::Trace, 0), &looking);
            let wrong: Vec<_> =
                tally.violations.iter().map(|wrong| format!("{}: {}", wrong.id, wrong.what)).collect();
            assert!(wrong.is_empty(), "{name}: {script}: {wrong:?}");
            assert!(tally.tally.recoveries > 0, "{name}: {script}: power fails again");
            println!("{name}: {:?}", tally.tally);
        }
    }
}

#[test]
fn metadata_pages_are_in_place_before_their_journal_is_emptied() {
    assert_eq!(find(&filled(""), None), None);
}

#[test]
fn changes_are_redone_in_the_order_of_their_time_stamps() {
    assert_eq!(find(TWO, None), None);
}

#[test]
fn what_capacitors_saved_is_brought_in_place() {
    assert_eq!(find(PART, None), None);
}

#[test]
fn planted_bugs_are_found() {
    let many: Vec<_> = (0..64).map(|number| format!("create name{number}")).collect();
    // Each file has a slot for its journal, and one for its queue.
    let owners: Vec<_> = (0..6).map(|number| format!("create f{number}\nwrite f{number} 0 100")).collect();
    let (many, owners) = (many.join("\n"), owners.join("\n"));
    let (full, deleted) = (filled(""), filled("create foo\nwrite foo 0 4096\nunlink foo\n"));
    let planted: [(Bug, &str); BUGS.len()] = [
        (Bug::PageNotInPlace, &full),
        (Bug::EpochBeforePages, &full),
        (Bug::PageNotNoted, &full),
        (Bug::EntryStays, REMOVE),
        (Bug::QueueNotSettled, OVER_PART),
        (Bug::QueueInMemoryOnly, PART),
        (Bug::TailNotCleared, TAIL),
        (Bug::SizeForgotten, PART),
        (Bug::RedoOutOfOrder, TWO),
        (Bug::RedoSkipped, CREATE),
        (Bug::StampNotCompared, &deleted),
        (Bug::QueueForgotten, PART),
        (Bug::BlockNotMarked, PART),
        (Bug::BlockStaysMarked, CUT),
        (Bug::PointersStay, CUT),
        (Bug::DirectoryNotGrown, &many),
        (Bug::NameNotReplaced, REPLACE),
        (Bug::SlotTakenFull, &owners),
        (Bug::NumberStaysTaken, REMOVE),
        (Bug::BlocksMiscounted, PART),
    ];
    assert_eq!(planted.map(|(bug, _)| bug), BUGS, "every bug is looked for");
    for (number, (bug, script)) in planted.into_iter().enumerate() {
        if !planted[..number].iter().any(|(_, before)| *before == script) {
            assert_eq!(find(script, None), None, "nothing is planted");
        }
        assert!(find(script, Some(bug)).is_some(), "{bug:?} is not found");
    }
}
