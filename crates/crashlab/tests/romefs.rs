//! RomeFS in the laboratory: all sequences of one operation, samples of everything else, and bugs planted in
//! it, each found.

mod sample;

use amphi_crashlab::workload::Operation;
use amphi_crashlab::{Bound, Kind, Looking, Session, WorkloadId, subject};
use amphi_fs_romefs::planted::{BUGS, Bug, plant};
use sample::{long, run};

fn session() -> Session {
    session_of("romefs")
}

fn session_of(name: &str) -> Session {
    Session::new(subject::named(name).expect("the subject exists"), "free").expect("it can be made")
}

#[test]
fn all_sequences_of_one_operation() {
    let tally = run(&session(), Kind::Seq1, 0..435, Bound { recovery: 1, ..Bound::BRISK });
    assert_eq!(tally.workloads, 435);
}

#[test]
fn sequences_of_two_and_three_operations() {
    let step = (4001 / long()) as usize;
    run(&session(), Kind::Seq2, (0..466_382).step_by(step), Bound { recovery: 1, ..Bound::BRISK });
    run(&session(), Kind::Seq3, 0..20 * long(), Bound { recovery: 1, ..Bound::BRISK });
}

#[test]
fn what_the_published_sequences_lack() {
    let session = session();
    let count = session.count(Kind::Extra1).expect("they are numbered");
    run(&session, Kind::Extra1, (0..count).step_by(2), Bound { recovery: 1, ..Bound::BRISK });
    let count = session.count(Kind::Mixed2).expect("they are numbered");
    let step = (9973 / long()) as usize;
    run(&session, Kind::Mixed2, (0..count).step_by(step), Bound { recovery: 1, ..Bound::BRISK });
}

#[test]
fn buffered_writes() {
    let session = session_of("romefs-lazy");
    run(&session, Kind::Seq1, 0..435, Bound { recovery: 1, ..Bound::BRISK });
    let step = (8009 / long()) as usize;
    run(&session, Kind::Seq2, (0..466_382).step_by(step), Bound { recovery: 1, ..Bound::BRISK });
    let count = session.count(Kind::Extra1).expect("they are numbered");
    run(&session, Kind::Extra1, (0..count).step_by(3), Bound { recovery: 1, ..Bound::BRISK });
    run(&session, Kind::Random, 0..2 * long(), Bound { one_point_in: 6, ..Bound::LINEAR });
}

#[test]
fn threads_for_the_block_path() {
    let session = session_of("romefs-threads");
    run(&session, Kind::Seq1, (0..435).step_by(5), Bound { recovery: 1, ..Bound::BRISK });
    run(&session, Kind::Random, 0..long(), Bound { one_point_in: 6, ..Bound::LINEAR });
}

#[test]
fn two_operations_at_a_time() {
    run(&session(), Kind::Pairs, 0..60 * long(), Bound::BRISK);
}

#[test]
fn long_runs() {
    run(&session(), Kind::Random, 0..3 * long(), Bound { one_point_in: 6, ..Bound::LINEAR });
}

const CREATE: &str = "create foo";
const WRITE: &str = "create foo\nwrite foo 0 20000";
const MERGE: &str = "create foo\nwrite foo 0 100\nwrite foo 50 200\nwrite foo 250 200";
const BRIDGE: &str = "create foo\nwrite foo 0 100\nwrite foo 200 100\nwrite foo 50 200";
const BLOCKS: &str =
    "create foo\nwrite foo 0 32768\nwrite foo 100 50\nwrite foo 16384 16384\nwrite foo 120 10";
const CUT: &str = "create foo\nwrite foo 0 32768\ntruncate foo 2500\nwrite foo 5000 100";
const SYNCED: &str = "create foo\nwrite foo 0 5000\nchmod foo 600\nfsync foo\nwrite foo 100 20000\nfsync foo";
const UNNAMED: &str = "tmpfile foo";

/// Where each bug is looked for.
#[derive(PartialEq)]
enum Place {
    /// In these operations, one a line.
    Script(&'static str),
    /// Where a leaf has no entry left.
    FullLeaf,
    /// In two operations at the same time.
    Pair(u64),
    /// In these operations, with writes that are buffered.
    Lazy(&'static str),
}
use Place::{FullLeaf, Lazy, Pair, Script};

/// Where each is found, and what the report has to say.
const PLANTED: [(Bug, Place, &str); 27] = [
    (Bug::LogLinesNotFlushed, Script(WRITE), "write foo"),
    (Bug::MetadataLinesNotFlushed, Script(CREATE), "create foo: filler is there and should not be"),
    (Bug::HeaderNotDurable, Pair(5), "setxattr foo"),
    (Bug::CommandForgotten, Script(BLOCKS), "write foo 0 32768"),
    (Bug::SubWritesAfterTail, Script(WRITE), "write foo"),
    (Bug::BlockInPlace, Script(BLOCKS), "operation 3: write foo 16384 16384"),
    (Bug::MarkForgotten, Script(WRITE), "create foo: the check finds: 1 data blocks"),
    (Bug::TailNotDurable, Script(CREATE), "create foo"),
    (Bug::SizeForgotten, Script(CREATE), "does not read as it was written"),
    (Bug::MergeInPlace, Script(MERGE), "operation 2: write foo 50 200"),
    (Bug::MergeForgetsOld, Script(MERGE), "operation 2: write foo 50 200"),
    (Bug::MergedEntryStays, Script(BRIDGE), "operation 3: write foo 50 200"),
    (Bug::WriteBackForgetsLogs, FullLeaf, "write foo"),
    (Bug::WriteBackKeepsEntries, FullLeaf, "write foo"),
    (Bug::WriteBackInPlace, FullLeaf, "write foo"),
    (Bug::ValidNotCut, Script(CUT), "operation 3: write foo 5000 100"),
    (Bug::CheckpointLineForgotten, Script(CREATE), "create foo"),
    (Bug::CheckpointBeforeLines, Script(CREATE), "the recovery from a crash in operation 0: create foo"),
    (Bug::HeadsBeforeLines, Script(CREATE), "create foo"),
    (Bug::RedoOutOfOrder, Script(CREATE), "create foo"),
    (Bug::RedoSkipped, Script(CREATE), "create foo"),
    (Bug::TailNotChecked, Script(CREATE), "create foo"),
    (Bug::BitsLeaked, Script(CREATE), "marked as in use, and are not"),
    (Bug::OrphansNotFinished, Script(UNNAMED), "tmpfile foo"),
    (Bug::EntryNotRemoved, Script(CREATE), "an entry makes no sense"),
    (Bug::BufferNotFlushed, Lazy(SYNCED), "fsync foo"),
    (Bug::BufferedSizeStored, Lazy(SYNCED), "foo"),
];

/// The first thing that is wrong at a place.
fn find(place: &Place) -> Option<String> {
    let script_of = |name: &str, text: &str| {
        let operations: Vec<Operation> =
            text.lines().map(|line| line.parse().expect("an operation")).collect();
        (session_of(name).with_trace(operations).expect("it is short"), Kind::Trace, 0)
    };
    let (session, kind, number) = match place {
        Script(text) => script_of("romefs", text),
        Lazy(text) => script_of("romefs-lazy", text),
        FullLeaf => {
            // Logs that do not touch, one more than a leaf has entries: the last is of several sectors.
            let logs: Vec<_> = (0..16).map(|log| format!("write foo {} 100\n", log * 200)).collect();
            let last = "write foo 3200 3000";
            script_of("romefs", &format!("create foo\nwrite foo 0 16384\n{}{last}", logs.concat()))
        }
        Pair(number) => (session(), Kind::Pairs, *number),
    };
    let bound = Bound { recovery: 24, ..Bound::BRISK };
    let looking = Looking { bound, only: None, most_violations: 1, record: false };
    let violation = session.run(WorkloadId::new(kind, number), &looking).violations.into_iter().next()?;
    Some(format!("{}: {}", violation.operation, violation.what))
}

#[test]
fn a_write_counts_as_a_whole_or_not_at_all() {
    for script in [WRITE, MERGE, BLOCKS] {
        assert_eq!(find(&Script(script)), None);
    }
}

/// What was written before the bytes that move the file's end, and after them, was written back first: a
/// power cut between them left a size that the file never had.
#[test]
fn a_file_has_a_size_that_it_had() {
    for script in [
        "create foo\nwrite foo 113 1212\nwrite foo 0 50\nsync",
        "create foo\nwrite foo 113 1212\nwrite foo 0 250\nsync",
        "create foo\nwrite foo 113 1212\nwrite foo 9000 7\nwrite foo 300 2500\nsync",
    ] {
        assert_eq!(find(&Lazy(script)), None);
    }
}

#[test]
fn a_synced_write_that_was_buffered_is_there() {
    assert_eq!(find(&Lazy(SYNCED)), None);
}

#[test]
fn recovery_ends_where_the_last_acknowledged_operation_did() {
    assert_eq!(find(&Script("mkdir A\ncreate A/foo\nrename A/foo bar")), None);
}

#[test]
fn planted_bugs_are_found() {
    let listed: Vec<_> = PLANTED.iter().map(|(bug, ..)| *bug).collect();
    assert_eq!(listed, BUGS, "every bug is looked for");
    for (number, (bug, place, says)) in PLANTED.iter().enumerate() {
        if !PLANTED[..number].iter().any(|(_, before, _)| before == place) {
            assert_eq!(find(place), None, "nothing is planted");
        }
        plant(Some(*bug));
        let found = find(place);
        plant(None);
        let report = found.unwrap_or_else(|| panic!("{bug:?} is not found"));
        assert!(report.contains(says), "{bug:?} is reported as '{report}', without '{says}'");
    }
}
