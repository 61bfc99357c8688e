//! The power fails at every command of the device, and at every step of its firmware, while tasks append,
//! commit and truncate: what was acknowledged is there, in order, and nothing comes from nowhere. Planted
//! bugs show that the test sees.

use std::collections::BTreeMap;
use std::sync::Arc;

use amphi_rt::sync::Mutex;
use amphi_rt::{Schedule, Sim, task};
use amphi_ssd::{Firmware, Ssd};
use amphi_wal::{Error, Log, Mode, Record};

use crate::rig::{self, PLACE, open, restart};

const WRITERS: u8 = 3;
const ROUNDS: u8 = 24;

/// What the log may hold.
#[derive(Default)]
struct Model {
    /// What was appended, by number.
    appended: BTreeMap<u64, Vec<u8>>,
    /// Records up to this one are durable.
    acknowledged: u64,
    /// Records up to this one are gone.
    truncated: u64,
    /// A truncation that failed may have dropped the records up to this one.
    maybe_truncated: u64,
}

impl Model {
    /// Compares what was found, and the number of the last record, with what may be. Goes on from there.
    fn judge(&mut self, found: &[Record], last: u64, life: &str) -> Result<(), String> {
        let first = last + 1 - found.len() as u64;
        let from_where = [self.truncated + 1, self.maybe_truncated.max(self.truncated) + 1];
        if !from_where.contains(&first) {
            return Err(format!("{life}: begins with {first}, not one of {from_where:?}"));
        }
        for (sequence, record) in (first..).zip(found) {
            if record.sequence != sequence || self.appended.get(&sequence) != Some(&record.content) {
                return Err(format!("{life}: record {sequence} is not what was appended: {record:?}"));
            }
        }
        if last < self.acknowledged {
            return Err(format!("{life}: {} was acknowledged, the last is {last}", self.acknowledged));
        }
        self.appended.retain(|sequence, _| *sequence <= last);
        (self.acknowledged, self.truncated, self.maybe_truncated) = (last, first - 1, first - 1);
        Ok(())
    }
}

/// Contents of few lengths: records of one life fit exactly where those of another were.
fn content(life: u8, writer: u8, round: u8, part: u8) -> Vec<u8> {
    [life, writer, round, part].repeat([60, 28, 200][usize::from(part)])
}

/// Appends and commits until the device fails or all is done.
fn write(mode: Mode, log: &Log<Ssd>, model: &Mutex<Model>, life: u8, writer: u8) {
    for round in 0..ROUNDS {
        let mut own = 0;
        for part in 0..3 {
            let content = content(life, writer, round, part);
            // Nobody sees the log while the model does not know what is in it.
            let mut model = model.lock();
            let appended = match log.append(&content) {
                Err(Error::Full { .. }) => {
                    let before = model.appended.last_key_value().map_or(0, |(sequence, _)| *sequence);
                    model.maybe_truncated = before;
                    if log.truncate().is_err() {
                        return;
                    }
                    (model.truncated, model.acknowledged) = (before, model.acknowledged.max(before));
                    log.append(&content)
                }
                outcome => outcome,
            };
            let Ok(sequence) = appended else { return };
            model.appended.insert(sequence, content);
            own = sequence;
        }
        if log.commit().is_err() {
            return;
        }
        assert!(mode == Mode::Async || log.durable() >= own, "a commit returned early");
        let mut model = model.lock();
        model.acknowledged = model.acknowledged.max(log.durable());
    }
}

/// When the power fails.
#[derive(Clone, Copy, Debug)]
enum Cut {
    Commands(u64),
    Steps(u64),
}

impl Cut {
    fn arm(self, device: &Ssd, seed: u64) {
        match self {
            Self::Commands(commands) => device.cut_after_commands(commands, seed),
            Self::Steps(steps) => device.cut_after_steps(steps, seed),
        }
    }

    /// One early in what follows.
    const fn early(self) -> Self {
        match self {
            Self::Commands(commands) => Self::Commands(commands % 30),
            Self::Steps(steps) => Self::Steps(steps % 30),
        }
    }
}

fn crashed(device: Arc<Ssd>, seed: u64) -> Arc<Ssd> {
    if device.has_power() {
        if seed.is_multiple_of(2) { device.host_crash(seed) } else { device.power_cut(seed) }
    }
    restart(device)
}

/// One run with a cut. `Ok(false)`: the run ended before it.
fn run(mode: Mode, cut: Cut, seed: u64) -> Result<bool, String> {
    let schedule = Schedule::Random { per_mille: 100, delay_ns: 20_000 };
    Sim::new(seed).schedule(schedule).run(|| {
        let device = Arc::new(rig::device(Firmware::BaBuffer));
        amphi_wal::create(&*device, &PLACE).map_err(|error| format!("making: {error}"))?;
        let log = Arc::new(open(&device, mode).map_err(|error| format!("opening: {error}"))?.1);
        let model = Arc::new(Mutex::new(Model::default()));
        cut.arm(&device, seed);
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (log, model) = (Arc::clone(&log), Arc::clone(&model));
                task::spawn("writer", move || write(mode, &log, &model, 0, writer))
            })
            .collect();
        writers.into_iter().for_each(task::JoinHandle::join);
        drop(log);
        let was_cut = !device.has_power();
        let mut device = crashed(device, seed);
        // Recovery is cut, too, at one of its first moments.
        cut.early().arm(&device, seed);
        drop(open(&device, mode));
        device = crashed(device, seed);
        let mut model = model.lock();
        // Each life appends where the one before broke off.
        for life in 1..4 {
            let (found, log) = open(&device, mode).map_err(|error| format!("life {life}: {error}"))?;
            model.judge(&found, log.durable(), &format!("life {life}"))?;
            let next = content(life, 0, 0, (seed % 3) as u8);
            match log.append(&next) {
                Ok(sequence) => {
                    model.appended.insert(sequence, next);
                    log.commit().map_err(|error| format!("life {life}: {error}"))?;
                    model.acknowledged = log.durable();
                }
                Err(Error::Full { .. }) => {}
                Err(error) => return Err(format!("life {life}: {error}")),
            }
            drop(log);
            device = crashed(device, seed + u64::from(life));
        }
        Ok(was_cut)
    })
}

/// Cuts one run at each of its moments, in steps of `step`. Returns the first that is judged wrong.
fn cut_everywhere(mode: Mode, make: fn(u64) -> Cut, seed: u64, step: usize) -> Option<String> {
    for moment in (0..).step_by(step) {
        match run(mode, make(moment), seed.wrapping_add(moment)) {
            Ok(true) => {}
            Ok(false) => {
                assert!(moment > 10, "the run ended after {moment} moments");
                return None;
            }
            Err(why) => return Some(format!("{mode:?}, seed {seed}, {:?}: {why}", make(moment))),
        }
    }
    unreachable!("every run ends")
}

#[test]
fn a_cut_at_any_command_loses_nothing_acknowledged() {
    assert_eq!(cut_everywhere(Mode::Ba, Cut::Commands, 1, 1), None);
}

#[test]
fn a_cut_at_any_step_of_the_firmware_loses_nothing_acknowledged() {
    assert_eq!(cut_everywhere(Mode::Ba, Cut::Steps, 2, 1), None);
}

#[test]
fn a_cut_of_a_log_written_by_block_loses_nothing_acknowledged() {
    assert_eq!(cut_everywhere(Mode::Sync, Cut::Commands, 3, 1), None);
    assert_eq!(cut_everywhere(Mode::Sync, Cut::Steps, 4, 1), None);
}

/// What was not written is lost, and nothing else: the log is a beginning of what was appended.
#[test]
fn a_cut_of_a_log_written_in_the_background_leaves_a_beginning_of_it() {
    assert_eq!(cut_everywhere(Mode::Async, Cut::Commands, 5, 1), None);
    assert_eq!(cut_everywhere(Mode::Async, Cut::Steps, 6, 1), None);
}

#[cfg(feature = "planted-bugs")]
#[test]
fn the_cuts_find_planted_bugs() {
    use amphi_wal::planted::{Bug, plant};
    let bugs = [
        Bug::SyncForgotten,
        Bug::FirstHalfNotSynced,
        Bug::TornRecordTaken,
        Bug::StaleRecordTaken,
        Bug::OpeningNotCounted,
        Bug::TruncationForgotten,
    ];
    let mut missed = Vec::new();
    for bug in bugs {
        plant(Some(bug));
        let found = (0..12).find_map(|seed| cut_everywhere(Mode::Ba, Cut::Commands, seed, 3));
        plant(None);
        match found {
            Some(why) => println!("{bug:?}: {why}"),
            None => missed.push(bug),
        }
    }
    assert_eq!(missed, [], "not found");
}
