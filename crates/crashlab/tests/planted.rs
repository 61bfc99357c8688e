//! The laboratory can fail: bugs planted in the device, the firmware, ByteFS and operations on names, each
//! found by a small part of the workloads that continuous integration runs, in a report that names the right
//! operation. The same workloads find nothing where nothing is planted.

use amphi_crashlab::workload::Operation;
use amphi_crashlab::{Bound, Kind, Looking, Session, Violation, WorkloadId, session, subject};
use amphi_fs_bytefs::planted::{self as in_bytefs, Bug as InByteFs};
use amphi_names::planted::{self as in_names, Bug as InNames};
use amphi_ssd::planted::{self as in_ssd, Bug as InSsd};

/// Where a bug is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In this sequence of one operation.
    Seq1(u64),
    /// In these operations, one a line.
    Script(&'static str),
    /// In these, on a device whose write buffer is volatile.
    Buffered(&'static str),
    /// In these, with transactions that are grouped.
    Grouped(&'static str),
    /// Where one file grows by a page while another is written over, so that garbage collection finds an
    /// erase block with one page in it that is current, and moves it.
    Growing,
}
use Place::{Buffered, Grouped, Growing, Script, Seq1};

/// Bugs of the device and its firmware, where each is found, and what the report has to say.
const IN_SSD: [(InSsd, Place, &str); 10] = [
    (InSsd::VerifyReadReturnsEarly, Seq1(0), "create foo"),
    (InSsd::LastLineNotFlushed, Seq1(0), "create foo"),
    (InSsd::CommitNotRecorded, Seq1(0), "create foo"),
    (InSsd::StaleEntryAfterBlockWrite, Seq1(18), "fsync foo"),
    (InSsd::CleaningOutOfOrder, Seq1(4), "create A/foo"),
    (InSsd::UncommittedReplayed, Seq1(0), "create foo"),
    (InSsd::LogClearedEarly, Seq1(0), "the recovery from a crash in operation 0: create foo"),
    (InSsd::CommitsOutliveRecovery, Seq1(0), "the first mount"),
    (InSsd::MergedTooFar, Script("tmpfile foo"), "tmpfile foo"),
    (InSsd::CopyVoidedEarly, Growing, "fsync "),
];

const OVERWRITE: &str = "create foo\nwrite foo 0 8192\nfsync foo\nwrite foo 100 50\nfsync foo";

/// The same for ByteFS.
const IN_BYTEFS: [(InByteFs, Place, &str); 25] = [
    (InByteFs::LastStoreNotFlushed, Seq1(0), "create foo"),
    (InByteFs::FenceMissing, Seq1(0), "create foo"),
    (InByteFs::VerifyMissing, Seq1(0), "create foo"),
    (InByteFs::BitmapOutsideTransaction, Seq1(0), "create foo"),
    (InByteFs::EntryOutsideTransaction, Seq1(266), "rename foo bar"),
    (InByteFs::TransactionNumberReused, Seq1(0), "it cannot be used again: create"),
    (InByteFs::ParentNotMoved, Seq1(353), "rename B A/C"),
    (InByteFs::OrphanNotRecorded, Script("tmpfile foo"), "tmpfile foo"),
    (InByteFs::InodeLeaked, Script("create foo\nunlink foo"), "it began after the crash: after unlink"),
    (
        InByteFs::ExtentLeaked,
        Script("create foo\nwrite-mapped foo 0 8192\nunlink foo"),
        "it began after the crash: after unlink",
    ),
    (InByteFs::RecoverSkipped, Seq1(0), "the first mount"),
    (InByteFs::OrphansNotFinished, Script("tmpfile foo"), "it began after the crash: after the recovery"),
    (InByteFs::CommitBeforeData, Seq1(12), "fallocate foo zero"),
    (InByteFs::BlocksNotFlushed, Buffered("create foo\nwrite foo 0 8192\nfsync foo"), "fsync foo"),
    (InByteFs::SizeBeforeData, Script("create foo\nwrite foo 0 8192\nfsync foo"), "fsync foo"),
    (InByteFs::DataLinesNotFlushed, Script(OVERWRITE), "operation 4: fsync foo"),
    (
        InByteFs::DataNotVerified,
        Script("create foo\nwrite foo 0 8192\nfsync foo\nwrite foo 100 50\nfdatasync foo"),
        "fdatasync foo",
    ),
    (
        InByteFs::DirectNotVerified,
        Script("create foo\nwrite foo 0 8192\nfsync foo\nwrite-direct foo 512 512\nfdatasync foo"),
        "fdatasync foo",
    ),
    (InByteFs::AttributesForgotten, Script(OVERWRITE), "operation 4: fsync foo"),
    (
        InByteFs::SizeForgotten,
        Script("create foo\nwrite foo 0 100\nfsync foo\nwrite foo 100 50\nfdatasync foo"),
        "fdatasync foo",
    ),
    (InByteFs::SyncForgotten, Seq1(19), "sync"),
    (
        InByteFs::HiddenBytesUncovered,
        Script("create foo\nwrite foo 0 8192\nfsync foo\ntruncate foo 2500\nwrite foo 5000 100\nfsync foo"),
        "operation 5: fsync foo",
    ),
    (InByteFs::GroupOutOfOrder, Grouped("create foo\nmkdir A\nfsync foo"), "fsync foo"),
    (InByteFs::FsyncLeavesGroup, Grouped("create foo\nfsync foo\nmkdir A"), "fsync foo"),
    (
        InByteFs::FreedAtJoin,
        Grouped("create foo\nwrite foo 0 8192\nsync\nunlink foo\ncreate bar\nwrite bar 0 8192\nfsync bar"),
        "fsync bar",
    ),
];

/// The same for operations on names, as ByteFS has them.
const IN_NAMES: [(InNames, Place, &str); 5] = [
    (InNames::RenameInTwoSteps, Seq1(266), "rename foo bar"),
    (InNames::LinkCountInRename, Seq1(353), "rename B A/C"),
    (InNames::LinkCountNotWritten, Seq1(188), "link foo bar"),
    // Found when what was there after the first crash is removed, or what was made after it.
    (InNames::LinkCountInRmdir, Script("mkdir A\nrmdir A"), "it began after the crash: after rmdir"),
    (InNames::OrphanOfOpenNotRecorded, Script("create foo\nunlink-open foo"), "unlink-open foo"),
];

fn new_session(place: Place) -> Session {
    let profile = if let Buffered(_) = place { "nvme" } else { "free" };
    let name = if let Grouped(_) = place { "bytefs-grouped" } else { "bytefs" };
    let session = Session::new(subject::named(name).expect("known"), profile).expect("it can be made");
    match place {
        Seq1(_) => session,
        Script(text) | Buffered(text) | Grouped(text) => with_script(session, text),
        Growing => {
            let round = "write a end 4096\nfsync a\nwrite b 0 61440\nfsync b\n";
            with_script(session, &format!("create a\ncreate b\n{}", round.repeat(15)))
        }
    }
}

fn with_script(session: Session, text: &str) -> Session {
    let operations: Vec<Operation> = text.lines().map(|line| line.parse().expect("an operation")).collect();
    session.with_trace(operations).expect("it is short")
}

/// The first thing that is wrong at a place.
fn find(session: &Session, place: Place) -> Option<Violation> {
    // Of many operations that are much the same, not every crash is needed.
    let bound = match place {
        Growing => Bound { one_point_in: 2, ..Bound::LINEAR },
        _ => Bound { recovery: 24, ..Bound::BRISK },
    };
    let looking = Looking { bound, only: None, most_violations: 1, record: false };
    let workload = match place {
        Seq1(number) => WorkloadId::new(Kind::Seq1, number),
        Script(_) | Buffered(_) | Grouped(_) | Growing => WorkloadId::new(Kind::Trace, 0),
    };
    session.run(workload, &looking).violations.into_iter().next()
}

fn is_found(bug: &str, place: Place, says: &str, plant: &dyn Fn(bool)) -> Result<(), String> {
    let session = new_session(place);
    plant(false);
    if let Some(violation) = find(&session, place) {
        return Err(format!("{place:?} finds {violation:?} where nothing is planted"));
    }
    plant(true);
    let found = find(&session, place);
    let again = found.as_ref().map(|violation| session::replay(&session, &violation.id));
    plant(false);
    let (Some(violation), Some(again)) = (found, again) else {
        return Err(format!("{bug} is not found in {place:?}"));
    };
    let report = format!("{}: {}", violation.operation, violation.what);
    if !report.contains(says) {
        return Err(format!("{bug} is reported as '{report}', without '{says}'"));
    }
    println!("{bug}: {} {report}", violation.id);
    // What shows at a crash shows again when that crash alone is done again.
    let without_crash = violation.what.contains("answers") || violation.operation == "the first mount";
    if again.violations.is_empty() && !without_crash {
        return Err(format!("{bug}: the replay of {} shows nothing wrong", violation.id));
    }
    Ok(())
}

fn all_are_found(outcomes: impl Iterator<Item = Result<(), String>>) {
    let missed: Vec<String> = outcomes.filter_map(Result::err).collect();
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[test]
fn bugs_of_the_device_and_its_firmware_are_found() {
    let listed: Vec<InSsd> = IN_SSD.iter().map(|(bug, ..)| *bug).collect();
    assert_eq!(listed, in_ssd::BUGS, "every bug is looked for");
    all_are_found(IN_SSD.into_iter().map(|(bug, place, says)| {
        is_found(&format!("{bug:?}"), place, says, &|on| in_ssd::plant(on.then_some(bug)))
    }));
}

#[test]
fn bugs_of_bytefs_are_found() {
    let mut listed: Vec<String> = IN_BYTEFS.iter().map(|(bug, ..)| format!("{bug:?}")).collect();
    let mut there: Vec<String> = in_bytefs::BUGS.iter().map(|bug| format!("{bug:?}")).collect();
    listed.sort();
    there.sort();
    assert_eq!(listed, there, "every bug is looked for");
    all_are_found(IN_BYTEFS.into_iter().map(|(bug, place, says)| {
        is_found(&format!("{bug:?}"), place, says, &|on| in_bytefs::plant(on.then_some(bug)))
    }));
}

#[test]
fn bugs_of_operations_on_names_are_found() {
    let listed: Vec<InNames> = IN_NAMES.iter().map(|(bug, ..)| *bug).collect();
    assert_eq!(listed, in_names::BUGS, "every bug is looked for");
    all_are_found(IN_NAMES.into_iter().map(|(bug, place, says)| {
        is_found(&format!("{bug:?}"), place, says, &|on| in_names::plant(on.then_some(bug)))
    }));
}
