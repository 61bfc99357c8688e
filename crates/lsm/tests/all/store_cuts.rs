//! The power fails at every command of the device while tasks write: what was acknowledged is there, a batch
//! is all or nothing, nothing comes from nowhere. Planted bugs show that the test sees.

use std::collections::BTreeMap;
use std::sync::Arc;

use amphi_lsm::{Batch, Options, Place, Store};
use amphi_rt::{Schedule, Sim, task};
use amphi_ssd::Ssd;

use crate::rig::{self, PLACE, SMALL_LOG, restart, store};

const WRITERS: u8 = 3;
const ROUNDS: u32 = 40;

fn options(place: &Place) -> Options {
    Options { level1_bytes: 8192, ..rig::options(place) }
}

fn key(writer: u8, number: u32) -> Vec<u8> {
    vec![writer, (number % 7) as u8]
}

/// The changes of one batch: two keys are put, one is deleted.
fn changes(writer: u8, round: u32) -> [(Vec<u8>, Option<Vec<u8>>); 3] {
    let value = |part: u32| [round.to_le_bytes(), part.to_le_bytes()].concat().repeat(15);
    [
        (key(writer, round * 3 + 2), None),
        (key(writer, round), Some(value(0))),
        (key(writer, round + 1), Some(value(1))),
    ]
}

type State = BTreeMap<Vec<u8>, Vec<u8>>;

fn after(writer: u8, rounds: u32) -> State {
    let mut state = State::new();
    for (key, value) in (0..rounds).flat_map(|round| changes(writer, round)) {
        match value {
            Some(value) => drop(state.insert(key, value)),
            None => drop(state.remove(&key)),
        }
    }
    state
}

/// Writes batch after batch until the device fails or all are written; returns how many were acknowledged.
fn write_until_cut(store: &Store<Ssd>, writer: u8) -> u32 {
    let written = (0..ROUNDS).take_while(|round| {
        let mut batch = Batch::new();
        for (key, value) in changes(writer, *round) {
            match value {
                Some(value) => batch.put(&key, &value).expect("small"),
                None => batch.delete(&key).expect("small"),
            }
        }
        store.write(&batch).is_ok()
    });
    written.count() as u32
}

fn judge(store: &Store<Ssd>, acknowledged: &[u32]) -> Result<(), String> {
    let found: State = store
        .range(&[], None)
        .and_then(Iterator::collect::<Result<_, _>>)
        .map_err(|error| format!("cannot be read: {error}"))?;
    for (key, value) in &found {
        if store.get(key) != Ok(Some(value.clone())) {
            return Err(format!("a get of {key:?} differs from the range"));
        }
    }
    for (writer, acknowledged) in (0..).zip(acknowledged) {
        let own: State =
            found.iter().filter(|(key, _)| key[0] == writer).map(|(k, v)| (k.clone(), v.clone())).collect();
        // The batch that was on its way may have arrived.
        if own != after(writer, *acknowledged) && own != after(writer, acknowledged + 1) {
            return Err(format!("writer {writer} with {acknowledged} acknowledged batches: {own:?}"));
        }
    }
    if found.keys().any(|key| key[0] >= WRITERS) {
        return Err("a key from nowhere".to_owned());
    }
    Ok(())
}

/// One run with a cut after `commands` commands. `Ok(false)`: the run ended before it.
fn cut(place: &Place, commands: u64, seed: u64) -> Result<bool, String> {
    let schedule = Schedule::Random { per_mille: 100, delay_ns: 20_000 };
    Sim::new(seed).schedule(schedule).run(|| {
        let (device, store) = store("p4800x-pmr", place, options(place));
        device.cut_after_commands(commands, seed);
        let store = Arc::new(store);
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let store = Arc::clone(&store);
                task::spawn("writer", move || write_until_cut(&store, writer))
            })
            .collect();
        let acknowledged: Vec<u32> = writers.into_iter().map(task::JoinHandle::join).collect();
        drop(store);
        let was_cut = !device.has_power();
        if !was_cut {
            device.power_cut(seed);
        }
        // Recovery is cut, too, at one of its first commands.
        let device = restart(device);
        device.cut_after_commands(commands % 40, seed);
        drop(Store::open(Arc::clone(&device), place.first, options(place)));
        if device.has_power() {
            device.power_cut(seed);
        }
        let device = restart(device);
        for again in [false, true] {
            let opened = Store::open(Arc::clone(&device), place.first, options(place));
            let store = opened.map_err(|error| format!("opening: {error}"))?;
            judge(&store, &acknowledged).map_err(|why| format!("opened again: {again}: {why}"))?;
            store.settle().map_err(|error| format!("settling: {error}"))?;
            judge(&store, &acknowledged).map_err(|why| format!("settled, again: {again}: {why}"))?;
        }
        let open = || Store::open(Arc::clone(&device), place.first, options(place)).expect("opens");
        open().put(&key(0, 0), b"after").expect("writes");
        if open().get(&key(0, 0)) != Ok(Some(b"after".to_vec())) {
            return Err("what was written after recovery is lost".to_owned());
        }
        Ok(was_cut)
    })
}

/// Cuts one run at each of its commands, in steps of `step`. Returns the first that is judged wrong.
fn cut_everywhere(place: &Place, seed: u64, step: usize) -> Option<String> {
    for commands in (0..).step_by(step) {
        match cut(place, commands, seed) {
            Ok(true) => {}
            Ok(false) => {
                assert!(commands > 100, "the run ended after {commands} commands");
                return None;
            }
            Err(why) => return Some(format!("seed {seed}, cut after {commands} commands: {why}")),
        }
    }
    unreachable!("every run ends")
}

#[test]
fn a_cut_at_any_command_loses_nothing_acknowledged() {
    assert_eq!(cut_everywhere(&PLACE, 1, 1), None);
}

#[test]
fn a_cut_at_any_command_with_a_small_log_loses_nothing_acknowledged() {
    assert_eq!(cut_everywhere(&SMALL_LOG, 2, 1), None);
}

#[cfg(feature = "planted-bugs")]
#[test]
fn the_cuts_find_planted_bugs() {
    use amphi_lsm::planted::{Bug, plant};
    let bugs = [
        (Bug::LogNotFlushed, PLACE),
        (Bug::LogNotVerified, PLACE),
        (Bug::ScanStopsAtGap, PLACE),
        (Bug::PieceForgotten, PLACE),
        (Bug::SlotForgotten, PLACE),
        (Bug::BarrierMissing, PLACE),
        (Bug::LogClearedEarly, PLACE),
        (Bug::LogResetEarly, PLACE),
        (Bug::SequenceReused, PLACE),
        (Bug::DeletionDropped, PLACE),
        (Bug::HalfClearedEarly, SMALL_LOG),
        (Bug::BackingForgotten, SMALL_LOG),
    ];
    let mut missed = Vec::new();
    for (bug, place) in bugs {
        plant(Some(bug));
        let found = (0..6).any(|seed| cut_everywhere(&place, seed, 7).is_some());
        plant(None);
        if !found {
            missed.push(bug);
        }
    }
    assert_eq!(missed, [], "not found");
}
