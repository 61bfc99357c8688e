//! The write-ahead log of programs (2B-SSD §IV-B) on a device that fails: what was acknowledged is found by
//! the next opening, in order, and so is nothing that was never appended.

use std::sync::Arc;

use amphi_crashlab::rig::{Fault, Rig};
use amphi_crashlab::subject::{self, Size};
use amphi_device::{EntryId, Lpa};
use amphi_rt::Sim;
use amphi_rt::random::Generator;
use amphi_ssd::Firmware;
use amphi_wal::{Error, Log, Mode, Options, Place, Record, Recovery};

use super::interrupted::{after_power_cut, each_fault};
use super::long;

/// A header page and nine pages of records: four halves and a half of one.
const PLACE: Place = Place { at: Lpa(5), pages: 10 };
const APPENDS: u64 = 120;

fn open(rig: &Arc<Rig>, mode: Mode) -> amphi_wal::Result<(Vec<Record>, Log<Rig>)> {
    let options = Options { mode, window: 4096, half_bytes: 8192, entries: [EntryId(1), EntryId(3)] };
    let mut recovery = Recovery::begin(Arc::clone(rig), PLACE, options)?;
    let records = recovery.by_ref().collect::<amphi_wal::Result<_>>()?;
    Ok((records, recovery.open()?))
}

/// What the log may hold.
#[derive(Default)]
struct Due {
    /// The records since the last truncation; the first of all has number 1.
    records: Vec<Record>,
    /// As many of them are durable.
    durable: usize,
    /// A truncation that failed may have dropped them all.
    may_be_empty: bool,
}

impl Due {
    /// Judges what an opening has found, and goes on from there.
    fn judge(&mut self, found: Vec<Record>) -> Result<(), String> {
        let is_beginning = self.records.starts_with(&found) && found.len() >= self.durable;
        let may_be = is_beginning || self.may_be_empty && found.is_empty();
        if !may_be {
            let numbers =
                |records: &[Record]| records.iter().map(|record| record.sequence).collect::<Vec<_>>();
            let (found, due) = (numbers(&found), numbers(&self.records));
            return Err(format!("{found:?} were found, of {due:?} with {} acknowledged", self.durable));
        }
        *self = Self { durable: found.len(), records: found, may_be_empty: false };
        Ok(())
    }
}

/// Appends, commits and truncates, and opens the log again where it asks for that, one command failing.
/// Answers whether it did.
fn run(mode: Mode, seed: u64, fault: Fault) -> Result<bool, String> {
    let rig = Arc::new(Rig::plain(subject::device("free", Firmware::BaBuffer, Size::Cramped)?));
    amphi_wal::create(&*rig, &PLACE).map_err(|error| error.to_string())?;
    let mut log = Some(open(&rig, mode).map_err(|error| error.to_string())?.1);
    let (mut due, mut dice) = (Due::default(), Generator::new(seed));
    rig.fail(Some(fault));
    for number in 0..APPENDS {
        let Some(now) = &log else {
            if let Ok((found, again)) = open(&rig, mode) {
                due.judge(found)?;
                log = Some(again);
            }
            continue;
        };
        let content = number.to_le_bytes().repeat(1 + dice.below(120) as usize);
        let outcome = match now.append(&content) {
            Ok(sequence) => {
                due.records.push(Record { sequence, content });
                if dice.below(3) == 0 { now.commit() } else { Ok(()) }
            }
            Err(Error::Full { .. }) => {
                due.may_be_empty = true;
                now.truncate().map(|()| due = Due::default())
            }
            Err(error) => Err(error),
        };
        match outcome {
            Ok(()) => {
                due.durable += due.records[due.durable..]
                    .iter()
                    .filter(|record| record.sequence <= now.durable())
                    .count()
            }
            Err(Error::OpenAgain) => log = None,
            Err(Error::Device(_)) => {}
            Err(error) => return Err(format!("append {number}: {error}")),
        }
    }
    let has_failed = rig.failed().is_some();
    drop(log);
    let rig = after_power_cut(rig, seed)?;
    due.judge(open(&rig, mode).map_err(|error| format!("after the cut: {error}"))?.0)?;
    Ok(has_failed)
}

#[test]
fn what_a_log_of_records_has_acknowledged_is_found() {
    let mut wrong = Vec::new();
    for mode in [Mode::Ba, Mode::Sync, Mode::Async] {
        for seed in 0..8 * long() {
            let found = each_fault(0, 1, |fault| Sim::new(seed).run(|| run(mode, seed, fault)));
            wrong.extend(found.into_iter().map(|what| format!("{mode:?}, seed {seed}, {what}")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
