//! The file system of F2FS's kind in the laboratory: all sequences of one operation, samples of everything
//! else, and bugs planted in it, each found.

mod planting;
mod sample;

use amphi_crashlab::oracle::Oracle;
use amphi_crashlab::subject::Fsync;
use amphi_crashlab::tree::Tree;
use amphi_crashlab::workload::Operation;
use amphi_crashlab::{Bound, Kind, Session, subject};
use amphi_fs_f2fslike::planted::{BUGS, Bug, plant};
use amphi_vfs::{Ino, Promise};
use planting::{Planted, Planting};
use sample::{long, run};

fn session() -> Session {
    session_on("free")
}

/// On a device whose write buffer is volatile.
fn buffered() -> Session {
    session_on("nvme")
}

fn session_on(profile: &str) -> Session {
    Session::new(subject::named("f2fslike").expect("the subject exists"), profile).expect("it can be made")
}

#[test]
fn all_sequences_of_one_operation() {
    let tally = run(&session(), Kind::Seq1, 0..435, Bound { recovery: 1, ..Bound::BRISK });
    assert_eq!(tally.workloads, 435);
    run(&buffered(), Kind::Seq1, (0..435).step_by(15), Bound::BRISK);
}

#[test]
fn sequences_of_two_and_what_the_published_ones_lack() {
    let step = (24_003 / long()) as usize;
    run(&session(), Kind::Seq2, (0..466_382).step_by(step), Bound { recovery: 1, ..Bound::BRISK });
    let session = session();
    let count = session.count(Kind::Extra1).expect("they are numbered");
    run(&session, Kind::Extra1, (0..count).step_by(10), Bound { recovery: 1, ..Bound::BRISK });
}

#[test]
fn two_operations_at_a_time_and_long_runs() {
    run(&session(), Kind::Pairs, 0..12 * long(), Bound::BRISK);
    for session in [session(), buffered()] {
        run(&session, Kind::Random, 0..long(), Bound { one_point_in: 12, ..Bound::LINEAR });
    }
}

const TWICE: &str = "create foo\nsync\ncreate bar\nsync\nunlink foo\nsync";
const WRITES: &str = "create foo\nwrite foo 0 20000\nfsync foo\nwrite foo 3000 9000\nsync";
/// The last sync, under way, may have brought times and not yet contents.
const MAPPED: &str = "create foo\nwrite-direct foo 0 3495\nsync\ncreate bar\nwrite-mapped foo 0 57";
const REUSE: &str =
    "create foo\nwrite foo 0 65536\nsync\nunlink foo\ncreate bar\nwrite bar 0 131072\nfsync bar";
const GROW: &str = "create foo\nwrite foo 0 3000\nsync\ntruncate foo 100\ntruncate foo 2000\nsync";
const UNNAMED: &str = "tmpfile foo\nsync";
const LINKS: &str = "create foo\nsync\nrename foo bar\nfsync bar";
const LARGE: &str = "create foo\nsync\nwrite foo 0 100\nwrite foo 4128768 100\nfsync foo";
const CREATE: &str = "create foo\nfsync foo";
/// A crash leads back to before an operation; of a file that was synced after it all stays. In minute 576 of
/// random runs the oracle went on with the owner that the file had at that moment.
#[test]
fn what_a_synced_file_has_stays_when_a_crash_leads_back() {
    let model = amphi_model::Model::new();
    let root = Tree::of(&model).expect("it can be read").nodes[&Ino::ROOT.0].clone();
    let promise =
        Promise { metadata_durable_on_return: false, atomic_writes: false, data_durable_on_return: false };
    let mut oracle = Oracle::new(promise, &root).expect("there is a root").with_fsync(Fsync::File);
    let foo = || "foo".to_owned();
    let workload = [
        Operation::Create(foo()),
        Operation::Sync,
        Operation::Mkdir("d".to_owned()),
        Operation::Chown(foo(), 1, 2),
        Operation::SetXattr(foo(), 100),
        Operation::Fsync(foo(), false),
    ];
    for (number, operation) in (0..).zip(&workload) {
        oracle.apply(operation, number).expect("it can be done");
    }
    let left = oracle.legal().candidates[0].tree.clone();
    assert!(left.get("d").is_none() && left.get("foo").is_some_and(|foo| foo.owner == (1, 2)), "{left:?}");
    let mut oracle = oracle.at_moment(0);
    oracle.adopt(&left).expect("it has the same names");
    let (left, now) = (left.get("foo"), oracle.candidate().tree);
    assert_eq!(now.get("foo").map(|foo| (foo.owner, &foo.xattrs)), left.map(|foo| (foo.owner, &foo.xattrs)));
}

const APPENDS: &str = "create foo\nwrite foo 0 5000\nfsync foo\nwrite foo 5000 9000\nfdatasync foo";
const CHANGES: &str = "create foo\nwrite foo 0 5000\nfsync foo\nchmod foo 4751\nwrite foo 0 4096\nfdatasync foo\n\
     truncate foo 5000\nfdatasync foo";
const BIG: &str = "create foo\nwrite foo 0 300000\nsync\nwrite foo 0 300000\nsync";

/// What is done with each of some files.
fn each(what: &str, names: std::ops::Range<u32>) -> String {
    names.map(|name| format!("{what} {name}\n")).collect()
}

/// So many new inodes that the journal has no room for their nodes, the second time.
fn crowd() -> String {
    format!("{}sync\n{}sync", each("create", 0..20), each("create", 20..40))
}

/// So many that it never has.
fn throng() -> String {
    format!("{}sync\n{}sync", each("create", 0..40), each("unlink", 0..40))
}

/// So many bytes of names that they leave their directory's inode.
fn wide() -> String {
    let create = |name: u32| format!("create {}{name}\nsync\n", "n".repeat(250));
    format!("{}unlink {}0\nsync", (0..8).map(create).collect::<String>(), "n".repeat(250))
}

/// So many sets that some are where the log of nodes goes next.
fn many() -> String {
    let write = |at: u32| format!("write foo {} 100\nfsync foo\n", at * 100);
    format!("create foo\nfsync foo\n{}", (0..16).map(write).collect::<String>())
}

/// Where each is found, and what the report has to say.
fn planted() -> Vec<Planted<Bug>> {
    let (crowd, throng, wide) = (crowd(), throng(), wide());
    let (crowd, throng) = (crowd.as_str(), throng.as_str());
    let of = |(bug, script, says): (Bug, &str, &'static str)| (bug, script.to_owned(), says);
    let mut all: Vec<_> = [
        (Bug::PackBeforeNat, crowd, "sync"),
        (Bug::PackBeforeSit, BIG, "sync"),
        (Bug::PackInPlace, TWICE, "sync"),
        (Bug::NatInPlace, throng, "sync"),
        (Bug::SitInPlace, BIG, "sync"),
        (Bug::StaleCopyCounts, crowd, "sync"),
        (Bug::SegmentFreeEarly, REUSE, "foo"),
        (Bug::EntriesForgotten, CREATE, "foo"),
        (Bug::OrphansForgotten, UNNAMED, "foo"),
        (Bug::TailShown, GROW, "foo"),
        (Bug::PagesForgotten, WRITES, "foo"),
        (Bug::FsyncForgotten, CREATE, "foo"),
        (Bug::AlwaysRolls, LINKS, "foo"),
        (Bug::RollForwardForgotten, CREATE, "foo"),
        (Bug::SetInPartCounts, LARGE, "foo"),
        (Bug::NameForgotten, CREATE, "foo"),
    ]
    .map(of)
    .into();
    all.push((Bug::AheadForgotten, many(), "foo"));
    all.push((Bug::JournalForgotten, TWICE.to_owned(), "foo"));
    all.push((Bug::JournalDropped, crowd.to_owned(), "sync"));
    all.push((Bug::EntriesForAddresses, wide.clone(), "sync"));
    all.push((Bug::BlockForgotten, wide, "sync"));
    all.push((Bug::NodesForgotten, APPENDS.to_owned(), "foo"));
    all.push((Bug::AttributesForgotten, CHANGES.to_owned(), "foo"));
    all
}

/// Those that show only where blocks are in a volatile write buffer.
fn planted_in_buffers() -> Vec<Planted<Bug>> {
    let of = |(bug, script, says): (Bug, &str, &'static str)| (bug, script.to_owned(), says);
    [(Bug::NodesBeforeData, APPENDS, "foo"), (Bug::PackBeforeNodes, MAPPED, "foo")].map(of).into()
}

#[test]
fn planted_bugs_are_found() {
    let bound = |_| Bound { recovery: 24, ..Bound::BRISK };
    let (usual, in_buffers) = BUGS.split_at(BUGS.len() - 2);
    Planting { session, bound, plant }.each_is_found(usual, planted());
    Planting { session: buffered, bound, plant }.each_is_found(in_buffers, planted_in_buffers());
}
