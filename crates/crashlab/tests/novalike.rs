//! The file system of NOVA's kind in the laboratory: all sequences of one operation, samples of everything
//! else, and bugs planted in it, each found.

mod direct_access;
mod planting;
mod sample;

use amphi_crashlab::{Bound, Kind, Session, subject};
use amphi_fs_novalike::planted::{BUGS, Bug, plant};
use planting::{Planted, Planting};
use sample::{long, run};

fn session() -> Session {
    Session::new(subject::named("novalike").expect("the subject exists"), "free").expect("it can be made")
}

#[test]
fn all_sequences_of_one_operation() {
    let tally = run(&session(), Kind::Seq1, 0..435, Bound { recovery: 1, ..Bound::BRISK });
    assert_eq!(tally.workloads, 435);
}

#[test]
fn sequences_of_two_and_what_the_published_ones_lack() {
    let step = (8002 / long()) as usize;
    run(&session(), Kind::Seq2, (0..466_382).step_by(step), Bound { recovery: 1, ..Bound::BRISK });
    let session = session();
    let count = session.count(Kind::Extra1).expect("they are numbered");
    run(&session, Kind::Extra1, (0..count).step_by(9), Bound { recovery: 1, ..Bound::BRISK });
}

#[test]
fn two_operations_at_a_time_and_long_runs() {
    run(&session(), Kind::Pairs, 0..12 * long(), Bound::BRISK);
    run(&session(), Kind::Random, 0..2 * long(), Bound { one_point_in: 6, ..Bound::LINEAR });
}

const CREATE: &str = "create foo";
const WRITE: &str = "create foo\nwrite foo 0 20000";
const OVERWRITE: &str = "create foo\nwrite foo 0 8192\nwrite foo 100 5000";
const UNLINK: &str = "create foo\nunlink foo";
const CUT: &str = "create foo\nwrite foo 0 32768\ntruncate foo 2500\nwrite foo 20000 100";
const GROW: &str = "create foo\nwrite foo 0 3000\ntruncate foo 100\ntruncate foo 2000";

/// Names that come and go until the directory's log has a second page, and one that stays.
fn busy_directory() -> String {
    format!("mkdir A\ncreate A/kept\n{}create A/bar", "create A/foo\nunlink A/foo\n".repeat(33))
}

/// Attributes that change until the file's log can do without its first page, then a file that takes one.
fn busy_file() -> String {
    format!("create foo\n{}create bar\nwrite bar 0 8192", "chmod foo 600\nchmod foo 644\n".repeat(34))
}

/// Where each is found, and what the report has to say.
fn planted() -> Vec<Planted<Bug>> {
    let of = |bug, script: &str, says| (bug, script.to_owned(), says);
    vec![
        of(Bug::TailBeforeEntries, WRITE, "write foo"),
        of(Bug::TailNotDurable, WRITE, "write foo"),
        of(Bug::WordsWithoutJournal, CREATE, "create foo"),
        of(Bug::JournalNotUndone, CREATE, "create foo"),
        of(Bug::JournalEndNotDurable, CREATE, "create foo"),
        of(Bug::DataInPlace, OVERWRITE, "write foo 100 5000"),
        of(Bug::EntryNotMarked, UNLINK, "foo"),
        of(Bug::CutForgotten, CUT, "foo"),
        of(Bug::TailNotCleared, GROW, "truncate foo 2000"),
        (Bug::LivePageCollected, busy_directory(), "A"),
        (Bug::PagesFreedEarly, busy_file(), "bar"),
    ]
}

#[test]
fn planted_bugs_are_found() {
    let bound = |operations| match operations {
        0..=10 => Bound { recovery: 1, ..Bound::BRISK },
        _ => Bound { one_point_in: 5, ..Bound::LINEAR },
    };
    Planting { session, bound, plant }.each_is_found(&BUGS, planted());
    direct_access::planted_bugs_are_found(session, bound);
}
