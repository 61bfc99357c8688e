//! The store beside a BTreeMap: keys, ranges, snapshots, opening again; tasks that write at the same time.

use std::collections::BTreeMap;
use std::sync::Arc;

use amphi_lsm::{Batch, Error, Options, Place, Snapshot, Store};
use amphi_rt::{Schedule, Sim, task};
use amphi_ssd::Ssd;
use proptest::prelude::*;

use crate::rig::{self, OPTIONS, PLACE, SMALL_LOG, store};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Clone, Debug)]
enum Op {
    Write(Vec<(u8, Option<(u8, u16)>)>),
    Get(u8),
    Range(u8, Option<u8>),
    TakeSnapshot,
    DropSnapshot,
    Flush,
    Settle,
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    let change = (0..40u8, prop::option::weighted(0.7, (any::<u8>(), 0..600u16)));
    prop_oneof![
        12 => prop::collection::vec(change, 1..6).prop_map(Op::Write),
        4 => any::<u8>().prop_map(Op::Get),
        2 => (0..40u8, prop::option::of(0..40u8)).prop_map(|(from, end)| Op::Range(from, end)),
        1 => Just(Op::TakeSnapshot),
        1 => Just(Op::DropSnapshot),
        1 => Just(Op::Flush),
        1 => Just(Op::Settle),
        1 => Just(Op::Reopen),
    ]
}

fn key(number: u8) -> Vec<u8> {
    format!("key {:02}", number % 40).into_bytes()
}

fn all(store: &Store<Ssd>, from: &[u8], end: Option<&[u8]>) -> Vec<(Vec<u8>, Vec<u8>)> {
    store.range(from, end).expect("opens").collect::<Result<_, _>>().expect("reads")
}

fn ranged(model: &Model, from: &[u8], end: Option<&[u8]>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let inside = |key: &[u8]| key >= from && end.is_none_or(|end| key < end);
    model.iter().filter(|(key, _)| inside(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Runs operations on store and model until the store is to be opened again; returns how many were done.
fn run(store: &Store<Ssd>, model: &mut Model, ops: &[Op]) -> usize {
    let mut snapshots: Vec<(Snapshot<'_, Ssd>, Model)> = Vec::new();
    for (number, op) in ops.iter().enumerate() {
        match op {
            Op::Write(changes) => {
                let mut batch = Batch::new();
                for (number, value) in changes {
                    let value = value.map(|(byte, length)| vec![byte; length.into()]);
                    match value {
                        Some(value) => {
                            batch.put(&key(*number), &value).expect("small");
                            model.insert(key(*number), value);
                        }
                        None => {
                            batch.delete(&key(*number)).expect("small");
                            model.remove(&key(*number));
                        }
                    }
                }
                store.write(&batch).expect("writes");
            }
            Op::Get(number) => {
                assert_eq!(store.get(&key(*number)).expect("reads"), model.get(&key(*number)).cloned());
            }
            Op::Range(from, end) => {
                let (from, end) = (key(*from), end.map(key));
                assert_eq!(all(store, &from, end.as_deref()), ranged(model, &from, end.as_deref()));
            }
            Op::TakeSnapshot => snapshots.push((store.snapshot(), model.clone())),
            Op::DropSnapshot => drop(snapshots.pop()),
            Op::Flush => store.flush().expect("flushes"),
            Op::Settle => store.settle().expect("settles"),
            Op::Reopen => return number + 1,
        }
        for (snapshot, past) in &snapshots {
            let seen = store.range_at(snapshot, &[], None).expect("opens").collect::<Result<Vec<_>, _>>();
            assert_eq!(seen.expect("reads"), ranged(past, &[], None), "a snapshot has changed");
            for number in [0, 7, 39] {
                let value = store.get_at(snapshot, &key(number)).expect("reads");
                assert_eq!(value, past.get(&key(number)).cloned());
            }
        }
    }
    ops.len()
}

fn against_the_model(place: &Place, options: Options, mut ops: &[Op]) {
    let (device, mut store) = store("free", place, options);
    let mut model = Model::new();
    while !ops.is_empty() {
        ops = &ops[run(&store, &mut model, ops)..];
        drop(store);
        store = Store::open(Arc::clone(&device), place.first, options).expect("opens again");
        assert_eq!(all(&store, &[], None), ranged(&model, &[], None), "after opening again");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn it_does_what_a_map_does(ops in prop::collection::vec(op(), 1..120), seed in any::<u64>()) {
        for place in [PLACE, SMALL_LOG] {
            Sim::new(seed).run(|| against_the_model(&place, rig::options(&place), &ops));
        }
    }
}

#[test]
fn tables_come_to_deep_levels_and_their_pages_are_used_again() {
    Sim::new(1).run(|| {
        // Ten times what the device holds.
        let options = Options { level1_bytes: 40 << 10, ..OPTIONS };
        let (device, store) = store("free", &PLACE, options);
        for round in 0..200u32 {
            for number in 0..200u32 {
                let value = [round.to_le_bytes(), number.to_le_bytes()].concat().repeat(12);
                store.put(format!("{number:05}").as_bytes(), &value).expect("writes");
            }
        }
        store.settle().expect("settles");
        for number in 0..100 {
            store.delete(format!("{number:05}").as_bytes()).expect("deletes");
        }
        drop(store);
        let store = Store::open(device, PLACE.first, options).expect("opens again");
        let left = all(&store, &[], None);
        assert_eq!(left.len(), 100);
        for (number, (_, value)) in (100u32..).zip(left) {
            assert_eq!(value, [199u32.to_le_bytes(), number.to_le_bytes()].concat().repeat(12));
        }
    });
}

/// A directory is a range: who lists one again waits for no device, and tables without any of its names are
/// not opened.
#[test]
fn a_range_that_is_read_again_comes_from_memory() {
    Sim::new(1).run(|| {
        let options = Options { block_cache_bytes: 1 << 20, ..OPTIONS };
        let (device, store) = store("free", &PLACE, options);
        for number in 0..100u32 {
            store.put(format!("{number:05}").as_bytes(), &[7; 100]).expect("writes");
        }
        store.settle().expect("settles");
        let read = |from: &[u8], end: &[u8]| {
            let before = device.stats().block_read.bytes();
            let found = all(&store, from, Some(end)).len();
            (found, (device.stats().block_read.bytes() - before) / 4096)
        };
        let (found, pages) = read(b"00040", b"00060");
        assert!(found == 20 && (1..=3).contains(&pages), "{found} keys by {pages} pages");
        assert_eq!(read(b"00040", b"00060"), (20, 0));
        assert_eq!(read(b"z", b"zz"), (0, 0));
        assert_eq!(read(b"00050x", b"00050y"), (0, 0), "its block is in memory");
    });
}

/// Each task owns keys and a counter in each; a batch moves two keys on together.
fn tasks_write_beside_each_other(place: Place, tasks: u8, rounds: u32, grouped: bool) {
    let options = Options { grouped, ..rig::options(&place) };
    let (device, store_now) = store("p4800x-pmr", &place, options);
    let store_now = Arc::new(store_now);
    let writers: Vec<_> = (0..tasks)
        .map(|task| {
            let store = Arc::clone(&store_now);
            task::spawn("writer", move || {
                for round in 0..rounds {
                    let mut batch = Batch::new();
                    for part in [0, 1] {
                        batch.put(&[task, part], &round.to_le_bytes().repeat(20)).expect("small");
                    }
                    store.write(&batch).expect("writes");
                    let read = store.get(&[task, 0]).expect("reads");
                    assert_eq!(read, Some(round.to_le_bytes().repeat(20)), "its own write");
                    if round.is_multiple_of(8) {
                        let seen: Vec<_> =
                            store.range(&[], None).expect("opens").collect::<Result<_, _>>().expect("reads");
                        for pair in seen.chunks(2) {
                            assert_eq!(pair[0].1, pair[1].1, "a snapshot sees half of a batch");
                        }
                    }
                }
            })
        })
        .collect();
    writers.into_iter().for_each(task::JoinHandle::join);
    drop(store_now);
    let store = Store::open(device, place.first, rig::options(&place)).expect("opens again");
    let last = (rounds - 1).to_le_bytes().repeat(20);
    let seen = all(&store, &[], None);
    assert_eq!(seen.len(), 2 * usize::from(tasks));
    assert!(seen.iter().all(|(_, value)| *value == last));
}

#[test]
fn tasks_in_virtual_time_write_beside_each_other() {
    for seed in 0..30 {
        let schedule = Schedule::Random { per_mille: 100, delay_ns: 20_000 };
        Sim::new(seed).schedule(schedule).run(|| {
            tasks_write_beside_each_other(
                if seed % 2 == 0 { PLACE } else { SMALL_LOG },
                3,
                40,
                seed % 3 == 2,
            );
        });
    }
}

/// Keys that are written again and again, faster than tables are merged: what nobody sees any more is not
/// allowed to fill the area.
#[test]
fn writers_wait_for_merging_before_the_area_is_full() {
    let place = Place { log_bytes: 4096 + 2 * 40_960, pages: 150, ..PLACE };
    let options = Options { memtable_bytes: 30_000, table_bytes: 32 << 10, ..OPTIONS };
    Sim::new(1).run(|| {
        // Tables are written at once and read block by block, each of which takes flash 60 us.
        let (_device, store) = store("romefs-a", &place, options);
        let store = Arc::new(store);
        let write = |task: u8| {
            let store = Arc::clone(&store);
            move || {
                for round in 0..400u32 {
                    store
                        .put(&[task, round as u8 % 8], &round.to_le_bytes().repeat(100))
                        .expect("there is room");
                }
            }
        };
        let writers: Vec<_> = (0..8).map(|task| task::spawn("writer", write(task))).collect();
        writers.into_iter().for_each(task::JoinHandle::join);
        assert_eq!(all(&store, &[], None).len(), 64);
    });
}

#[test]
fn threads_write_beside_each_other() {
    tasks_write_beside_each_other(PLACE, 4, 100, false);
    tasks_write_beside_each_other(SMALL_LOG, 4, 100, true);
}

#[test]
fn what_is_too_large_is_refused_and_changes_nothing() {
    Sim::new(1).run(|| {
        let (_device, store) = store("free", &PLACE, OPTIONS);
        assert!(matches!(store.put(&[0; 4097], b""), Err(Error::TooLarge { what: "a key", .. })));
        assert!(matches!(
            store.put(b"a", &vec![0; (256 << 10) + 1]),
            Err(Error::TooLarge { what: "a value", .. })
        ));
        // Half of this log has 8 KB.
        assert!(matches!(store.put(b"a", &[0; 8192]), Err(Error::TooLarge { what: "a batch", .. })));
        store.put(&[1; 4096], &[2; 3000]).expect("writes");
        store.put(b"", b"").expect("writes");
        store.flush().expect("flushes");
        assert_eq!(all(&store, &[], None), [(vec![], vec![]), (vec![1; 4096], vec![2; 3000])]);
    });
}

/// Whether a snapshot sees what it saw, after merges down to level 1.
fn a_snapshot_outlasts_merges() -> bool {
    Sim::new(1).run(|| {
        let (_device, store) = store("free", &PLACE, OPTIONS);
        store.put(b"key", b"old").expect("writes");
        let snapshot = store.snapshot();
        for value in [b"new", b"two"] {
            store.put(b"key", value).expect("writes");
            store.flush().expect("flushes");
        }
        store.settle().expect("settles");
        assert_eq!(store.get(b"key").expect("reads").as_deref(), Some(&b"two"[..]));
        store.get_at(&snapshot, b"key").expect("reads").as_deref() == Some(b"old")
    })
}

#[test]
fn merges_keep_what_a_snapshot_sees() {
    assert!(a_snapshot_outlasts_merges());
}

#[cfg(feature = "planted-bugs")]
#[test]
fn a_forgotten_snapshot_is_found() {
    use amphi_lsm::planted::{Bug, plant};
    plant(Some(Bug::SnapshotForgotten));
    let kept = a_snapshot_outlasts_merges();
    plant(None);
    assert!(!kept);
}
