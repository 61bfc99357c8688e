//! Days of simulated time with the power failing every minute: random operations on a device that takes the
//! time its profile says, with a log and flash so small that they are cleaned all the time; then power on,
//! recovery, comparison, check, and on with what is left.
//!
//! Unlike elsewhere in the laboratory these are real cuts: in the middle of whatever host, firmware and
//! background tasks are doing.

use std::sync::Arc;

use amphi_rt::Sim;
use amphi_rt::random::Generator;
use amphi_vfs::{Error, Ino};

use crate::judge;
use crate::lab::Tally;
use crate::oracle::{Legal, Oracle};
use crate::rig::Rig;
use crate::subject::{self, Size, Subject};
use crate::tree::Tree;
use crate::workload::{Operation, random};

const MINUTE_NS: u64 = 60_000_000_000;
/// Longest pause between two operations: some six hundred operations a minute.
const LONGEST_PAUSE_NS: u64 = 200_000_000;

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Days {
    /// In numbers; the states are the cuts.
    pub tally: Tally,
    /// Operations done.
    pub operations: u64,
    /// Cuts that came in the middle of an operation.
    pub interrupted: u64,
    /// What the device cleaned and collected meanwhile.
    pub log_cleanings: u64,
    /// Blocks emptied by garbage collection.
    pub gc_runs: u64,
    /// What went wrong, at which minute, doing what.
    pub violation: Option<String>,
}

/// Lets `minutes` minutes pass, decided by `seed`. `progress` is told the minute.
///
/// # Errors
/// The device or the file system is not possible, in words.
pub fn run(
    subject: &Subject,
    profile: &str,
    seed: u64,
    minutes: u64,
    progress: &dyn Fn(u64),
) -> Result<Days, String> {
    let limit = (minutes + 60) * 2 * MINUTE_NS;
    let world = Sim::new(seed).stack_bytes(4 << 20).blocking_limit(None).time_limit_ns(limit);
    let outcome = world.try_run(|| {
        let mut days = Days::default();
        match live(subject, profile, seed, minutes, progress, &mut days) {
            Ok(()) => Ok(days),
            Err(Trouble::Impossible(what)) => Err(what),
            Err(Trouble::Wrong(what)) => {
                days.tally.violations = 1;
                days.violation = Some(what);
                Ok(days)
            }
        }
    });
    outcome.unwrap_or_else(|failure| {
        let tally = Tally { violations: 1, ..Tally::default() };
        Ok(Days { tally, violation: Some(failure.to_string()), ..Days::default() })
    })
}

enum Trouble {
    Impossible(String),
    Wrong(String),
}

fn live(
    subject: &Subject,
    profile: &str,
    seed: u64,
    minutes: u64,
    progress: &dyn Fn(u64),
    days: &mut Days,
) -> Result<(), Trouble> {
    let impossible = Trouble::Impossible;
    let mut dice = Generator::new(seed);
    let ssd = subject::timed_device(profile, subject.firmware, Size::Cramped).map_err(impossible)?;
    let mut rig = Arc::new(Rig::plain(ssd));
    subject.format(&rig).map_err(impossible)?;
    let mut fs = subject.mount(&rig).map_err(impossible)?;
    let tree = Tree::of(&*fs).map_err(impossible)?;
    let root = tree.nodes.get(&Ino::ROOT.0).ok_or_else(|| Trouble::Impossible("no root".to_owned()))?;
    let oracle = Oracle::new(fs.promise(), root).map_err(|error| Trouble::Impossible(error.to_string()))?;
    let mut oracle = oracle.with_fsync(subject.fsync);
    for minute in 0..minutes {
        let wrong = |what: String| Trouble::Wrong(format!("seed {seed}, minute {minute}: {what}"));
        let cut_seed = dice.next();
        let interrupted = pass_a_minute(&mut dice, cut_seed, &rig, &*fs, &mut oracle, days).map_err(wrong)?;
        let doing =
            interrupted.as_ref().map_or_else(String::new, |(operation, _)| format!("during {operation}: "));
        let wrong = |what: String| wrong(format!("{doing}{what}"));
        rig.ssd().power_cut(cut_seed);
        let stats = rig.ssd().stats();
        days.log_cleanings = stats.log_cleanings;
        days.gc_runs = stats.gc_runs;
        drop(fs);
        let ssd = Arc::into_inner(rig)
            .ok_or_else(|| wrong("a file system that is gone still holds the device".to_owned()))?
            .into_ssd();
        let ssd = ssd.restart().map_err(|error| wrong(format!("the device does not power up: {error}")))?;
        // Every other time the power fails once more while it recovers.
        let step = dice.below(400);
        let recovered = if dice.below(2) == 0 {
            days.tally.recoveries += 1;
            judge::recover_twice(subject, ssd, step as u32)
        } else {
            judge::recover(subject, ssd)
        }
        .map_err(wrong)?;
        days.tally.states += 1;
        (rig, fs) = (recovered.rig, recovered.fs);
        let found = settle(&*fs, &mut oracle, interrupted).map_err(wrong)?;
        judge::clean(subject, &rig).map_err(wrong)?;
        oracle.adopt(&found).map_err(|error| wrong(error.to_string()))?;
        days.tally.points += 1;
        progress(minute + 1);
    }
    Ok(())
}

/// Finds out whether an interrupted operation has happened, and lets the oracle know.
fn settle(
    fs: &dyn amphi_vfs::FileSystem,
    oracle: &mut Oracle,
    interrupted: Option<(Operation, Oracle)>,
) -> Result<Tree, String> {
    // The model does at once what takes the file system some time, so their time stamps differ.
    let legal = match &interrupted {
        Some((operation, after)) => oracle.legal_until(after, operation),
        None => oracle.legal(),
    };
    let legal = Legal { times: false, ..legal };
    let mut wrong = Vec::new();
    // The likeliest, and where nothing changed the one that keeps most, is the last.
    for (moment, candidate) in legal.candidates.iter().enumerate().rev() {
        let one = Legal { candidates: vec![candidate.clone()], ..legal.clone() };
        match judge::compare(fs, &one) {
            Ok(found) => {
                let before = oracle.moments();
                let (then, moment) = match interrupted {
                    Some((_, after)) if moment >= before => (after, oracle.moment_after(moment - before)),
                    _ => (oracle.clone(), moment),
                };
                *oracle = then.at_moment(moment);
                return Ok(found);
            }
            Err(what) => wrong.push(what),
        }
    }
    Err(wrong.join("; or else: "))
}

/// Does random operations until the power fails, or a minute is over. Answers the operation in which it
/// failed, and the oracle had it been completed.
fn pass_a_minute(
    dice: &mut Generator,
    cut_seed: u64,
    rig: &Rig,
    fs: &dyn amphi_vfs::FileSystem,
    oracle: &mut Oracle,
    days: &mut Days,
) -> Result<Option<(Operation, Oracle)>, String> {
    let end = amphi_rt::time::now_ns() + MINUTE_NS;
    loop {
        let now = amphi_rt::time::now_ns();
        // The last operation of most minutes is cut in the middle; a few minutes end while nothing is done.
        let last = end.saturating_sub(now) < LONGEST_PAUSE_NS;
        if last && dice.below(8) == 0 {
            amphi_rt::time::sleep_until_ns(end);
            return Ok(None);
        }
        if last {
            rig.ssd().cut_after_steps(dice.below(60), cut_seed);
        }
        for _burst in 0..if last { 40 } else { 1 } {
            let room_maker = oracle.room_maker(fs);
            let operation = room_maker.unwrap_or_else(|| random::operation(dice)).resolved(&oracle.model);
            let number = days.operations;
            days.operations += 1;
            let mut after = oracle.clone();
            let due = after.apply(&operation, number);
            let answer = operation.apply(fs, number);
            if matches!(answer, Err(Error::Io(_) | Error::ReadOnly)) || !rig.ssd().has_power() {
                days.interrupted += 1;
                return Ok(Some((operation, after)));
            }
            if answer.is_ok() != due.is_ok() {
                return Err(format!("{operation} answers {answer:?}, and the model {due:?}"));
            }
            *oracle = after;
        }
        if last {
            return Ok(None);
        }
        amphi_rt::time::sleep_ns(dice.below(LONGEST_PAUSE_NS));
    }
}
