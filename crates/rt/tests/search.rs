//! Proof that the search finds what it is for: bugs planted here, each found within 1,000 seeds and replayed
//! from its seed.
// Compares virtual with real time and threads.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use amphi_rt::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use amphi_rt::sync::{Condvar, Mutex};
use amphi_rt::{FailureKind, Found, Schedule, Sim, task};
use std::sync::Arc;

const SCHEDULES: [Option<Schedule>; 3] = [
    None,
    Some(Schedule::Random { per_mille: 100, delay_ns: 0 }),
    Some(Schedule::Pct { depth: 3, points: 0 }),
];

/// Finds the bug under each kind of schedule, and again from the seed alone; the seeds it took.
fn found_and_replayed(kind: FailureKind, program: impl Fn()) -> Vec<Found> {
    SCHEDULES
        .into_iter()
        .map(|schedule| {
            let mut search = Sim::explore(0..1000);
            if let Some(schedule) = schedule {
                search = search.schedule(schedule);
            }
            let found = search.find(&program).unwrap_or_else(|| panic!("{schedule:?} did not find it"));
            println!("{schedule:?}: found after {} runs", found.runs);
            assert_eq!(found.failure.kind, kind, "{found}");
            let again = search.replay(found.failure.seed, &program).expect_err("the seed fails again");
            assert_eq!(
                (again.time_ns, again.to_string()),
                (found.failure.time_ns, found.failure.to_string())
            );
            found
        })
        .collect()
}

/// Two tasks add one to a number by reading and writing it.
fn lost_update(lock_around_both: bool) {
    let (number, lock) = (AtomicU64::new(0), Mutex::new(()));
    task::scope(|scope| {
        for _ in 0..2 {
            scope.spawn("adder", || {
                let _guard = lock_around_both.then(|| lock.lock());
                let before = number.load(Ordering::SeqCst);
                number.store(before + 1, Ordering::SeqCst);
            });
        }
    });
    assert_eq!(number.load(Ordering::SeqCst), 2, "an update was lost");
}

/// One task waits for a flag that another raises; checked outside the lock, the notification may come before
/// the wait.
fn lost_wake_up(check_under_the_lock: bool) {
    let (ready, changed) = (Arc::new(Mutex::new(false)), Arc::new(Condvar::new()));
    let (raised, notified) = (Arc::clone(&ready), Arc::clone(&changed));
    let raiser = task::spawn("raiser", move || {
        *raised.lock() = true;
        notified.notify_one();
    });
    if check_under_the_lock {
        changed.wait_while(&mut ready.lock(), |ready| !*ready);
    } else {
        let is_ready = *ready.lock();
        if !is_ready {
            changed.wait(&mut ready.lock());
        }
    }
    raiser.join();
}

/// A stack of free slots, its head compared and exchanged; with a counter in the head, or, wrongly, without.
struct FreeList {
    head: AtomicU64,
    next: [AtomicU32; 4],
    counted: bool,
}

impl FreeList {
    const END: u32 = u32::MAX;

    fn pop(&self) -> Option<u32> {
        loop {
            let head = self.head.load(Ordering::SeqCst);
            let slot = head as u32;
            if slot == Self::END {
                return None;
            }
            let next = self.next[slot as usize].load(Ordering::SeqCst);
            let new = u64::from(next) | self.count(head);
            if self.head.compare_exchange(head, new, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                return Some(slot);
            }
        }
    }

    fn push(&self, slot: u32) {
        loop {
            let head = self.head.load(Ordering::SeqCst);
            self.next[slot as usize].store(head as u32, Ordering::SeqCst);
            let new = u64::from(slot) | self.count(head);
            if self.head.compare_exchange(head, new, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                return;
            }
        }
    }

    fn count(&self, head: u64) -> u64 {
        if self.counted { ((head >> 32) + 1) << 32 } else { 0 }
    }
}

fn aba(counted: bool) {
    let list = FreeList {
        head: AtomicU64::new(0),
        next: [AtomicU32::new(1), AtomicU32::new(2), AtomicU32::new(3), AtomicU32::new(FreeList::END)],
        counted,
    };
    let used = [const { AtomicU32::new(0) }; 4];
    let take = || {
        let slot = list.pop().expect("fewer takers than slots");
        assert_eq!(used[slot as usize].fetch_add(1, Ordering::SeqCst), 0, "slot {slot} was given out twice");
        slot
    };
    let give = |slot: u32| {
        used[slot as usize].fetch_sub(1, Ordering::SeqCst);
        list.push(slot);
    };
    task::scope(|scope| {
        for _ in 0..2 {
            scope.spawn("taker", || {
                let (first, second) = (take(), take());
                give(first);
                let third = take();
                give(second);
                give(third);
            });
        }
    });
}

/// Two tasks take two locks; in opposite order they may wait for each other.
fn lock_order(same_order: bool) {
    let (a, b) = (Mutex::new(0), Mutex::new(0));
    task::scope(|scope| {
        scope.spawn("a then b", || {
            let (mut a, mut b) = (a.lock(), b.lock());
            (*a, *b) = (*b, *a);
        });
        scope.spawn("b then a", || {
            if same_order {
                let (mut a, mut b) = (a.lock(), b.lock());
                (*a, *b) = (*b, *a);
            } else {
                let (mut b, mut a) = (b.lock(), a.lock());
                (*a, *b) = (*b, *a);
            }
        });
    });
}

#[test]
fn finds_a_lost_update() {
    for found in found_and_replayed(FailureKind::Panic, || lost_update(false)) {
        assert!(found.failure.message.contains("an update was lost"));
    }
}

#[test]
fn finds_a_lost_wake_up() {
    for found in found_and_replayed(FailureKind::Deadlock, || lost_wake_up(false)) {
        assert!(found.failure.message.contains("task 1 'main' waits for condition variable"), "{found}");
    }
}

#[test]
fn finds_aba() {
    found_and_replayed(FailureKind::Panic, || aba(false));
}

#[test]
fn finds_a_lock_order_deadlock() {
    for found in found_and_replayed(FailureKind::Deadlock, || lock_order(false)) {
        assert!(found.failure.message.contains("circle"), "{found}");
    }
}

/// A lock that spins: whoever has the higher priority must give way some time, or nobody gets on.
#[test]
fn spinning_for_another_task_ends_and_spinning_for_nobody_is_a_livelock() {
    let program = |unlocks: bool| {
        let (locked, count) = (AtomicU32::new(0), AtomicU64::new(0));
        task::scope(|scope| {
            for _ in 0..3 {
                scope.spawn("spinner", || {
                    for _ in 0..3 {
                        while locked.compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst).is_err() {}
                        let before = count.load(Ordering::SeqCst);
                        count.store(before + 1, Ordering::SeqCst);
                        if unlocks {
                            locked.store(0, Ordering::SeqCst);
                        }
                    }
                });
            }
        });
        assert_eq!(count.load(Ordering::SeqCst), 9);
    };
    Sim::explore(0..200).run(|| program(true));
    let found = Sim::explore(0..1)
        .within(Sim::new(0).livelock_after(100_000))
        .find(|| program(false))
        .expect("it spins");
    assert_eq!(found.failure.kind, FailureKind::Livelock, "{found}");
    assert!(found.failure.message.contains("'spinner' could run, gave way"), "{found}");
}

#[test]
fn accuses_nobody_who_is_innocent() {
    Sim::explore(0..1000).run(|| lost_update(true));
    Sim::explore(0..1000).run(|| lost_wake_up(true));
    Sim::explore(0..1000).run(|| aba(true));
    Sim::explore(0..1000).run(|| lock_order(true));
}

#[test]
fn says_how_to_replay() {
    let found = Sim::explore(0..1000).find(|| lost_update(false)).expect("found above");
    let expected = format!(
        "AMPHI_SEED={} cargo test -p amphi-rt --test search says_how_to_replay -- --exact",
        found.failure.seed
    );
    assert_eq!(found.replay, expected);
}
