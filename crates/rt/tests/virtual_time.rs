//! What a user sees of virtual time: the clock, the order of tasks, locks, and how failures are reported.
// Compares virtual with real time and threads.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use amphi_rt::sync::{Condvar, Mutex, RwLock, RwLockUpgradableReadGuard};
use amphi_rt::{FailureKind, Sim, cpu, random, task, time};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;

/// A run with sleeping, contended and computing tasks; what happened, in order.
fn busy_world(seed: u64) -> Vec<(u64, u64, u64)> {
    Sim::new(seed).run(|| {
        let log = Arc::new(Mutex::new(Vec::new()));
        let tasks: Vec<_> = (0..20)
            .map(|i| {
                let log = Arc::clone(&log);
                task::spawn(&format!("worker {i}"), move || {
                    for _ in 0..10 {
                        if random::below(2) == 0 {
                            time::sleep_ns(random::below(100));
                        } else {
                            cpu::charge_ns(random::below(50));
                        }
                        let mut log = log.lock();
                        time::sleep_ns(random::below(3));
                        log.push((time::now_ns(), task::id(), random::u64()));
                    }
                })
            })
            .collect();
        for task in tasks {
            task.join();
        }
        let log = log.lock();
        log.clone()
    })
}

#[test]
fn one_seed_is_one_history() {
    assert_eq!(busy_world(1), busy_world(1));
    assert_ne!(busy_world(1), busy_world(2));
}

#[test]
fn ties_are_broken_by_the_seed() {
    let order = |seed| {
        Sim::new(seed).run(|| {
            let order = Arc::new(Mutex::new(Vec::new()));
            let tasks: Vec<_> = (0..4)
                .map(|i| {
                    let order = Arc::clone(&order);
                    task::spawn("tied", move || {
                        time::sleep_ns(100);
                        order.lock().push(i);
                    })
                })
                .collect();
            tasks.into_iter().for_each(task::JoinHandle::join);
            let order = order.lock();
            order.clone()
        })
    };
    let orders: std::collections::HashSet<Vec<i32>> = (0..500).map(order).collect();
    assert_eq!(orders.len(), 24, "every order of four tied tasks comes up");
}

#[test]
fn sleeping_costs_nothing_and_wakes_in_order() {
    let started = std::time::Instant::now();
    Sim::new(7).run(|| {
        let wall = time::wall_ns();
        let order = Arc::new(Mutex::new(Vec::new()));
        for (i, seconds) in [30, 10, 20].into_iter().enumerate() {
            let order = Arc::clone(&order);
            task::spawn("sleeper", move || {
                time::sleep_ns(seconds * SECOND);
                order.lock().push((i, time::now_ns()));
            });
        }
        time::sleep_until_ns(3600 * SECOND);
        assert_eq!(*order.lock(), [(1, 10 * SECOND), (2, 20 * SECOND), (0, 30 * SECOND)]);
        assert_eq!(time::now_ns(), 3600 * SECOND);
        assert_eq!(time::wall_ns() - wall, 3600 * SECOND as i64);
    });
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_mutex_excludes_and_passes_in_turn() {
    Sim::new(3).run(|| {
        let shared = Arc::new((Mutex::new(0_u64), AtomicUsize::new(0)));
        let tasks: Vec<_> = (0..10)
            .map(|_| {
                let shared = Arc::clone(&shared);
                task::spawn("taker", move || {
                    for _ in 0..10 {
                        let mut count = shared.0.lock();
                        assert_eq!(shared.1.fetch_add(1, Ordering::Relaxed), 0, "two tasks inside");
                        let before = *count;
                        time::sleep_ns(10);
                        *count = before + 1;
                        shared.1.fetch_sub(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        tasks.into_iter().for_each(task::JoinHandle::join);
        assert_eq!(*shared.0.lock(), 100);
        assert_eq!(time::now_ns(), 1000, "the lock is handed on without a gap");
    });
}

#[test]
fn readers_share_and_writers_do_not() {
    Sim::new(3).run(|| {
        let lock = Arc::new(RwLock::new(0));
        let readers: Vec<_> = (0..5)
            .map(|_| {
                let lock = Arc::clone(&lock);
                task::spawn("reader", move || {
                    let value = lock.read();
                    time::sleep_ns(100);
                    assert_eq!(*value, 0);
                })
            })
            .collect();
        time::sleep_ns(50);
        let writer = {
            let lock = Arc::clone(&lock);
            task::spawn("writer", move || {
                let mut value = lock.write();
                assert_eq!(time::now_ns(), 100);
                time::sleep_ns(100);
                *value = 1;
            })
        };
        time::sleep_ns(10);
        assert_eq!(*lock.read(), 1, "a waiting writer goes before a later reader");
        assert_eq!(time::now_ns(), 200);
        readers.into_iter().for_each(task::JoinHandle::join);
        writer.join();
        let upgradable = lock.upgradable_read();
        let reader = {
            let lock = Arc::clone(&lock);
            task::spawn("reader", move || {
                let value = lock.read();
                time::sleep_ns(100);
                *value
            })
        };
        time::sleep_ns(1);
        *RwLockUpgradableReadGuard::upgrade(upgradable) = 2;
        assert_eq!(time::now_ns(), 300, "the upgrade waits for the reader");
        assert_eq!(reader.join(), 1);
    });
}

#[test]
fn a_writer_that_gives_up_lets_the_readers_behind_it_in() {
    Sim::new(0).run(|| {
        let lock = Arc::new(RwLock::new(0));
        let first = lock.read();
        let (impatient, reading) = (Arc::clone(&lock), Arc::clone(&lock));
        let writer =
            task::spawn("writer", move || impatient.try_write_for(Duration::from_nanos(100)).is_none());
        time::sleep_ns(10);
        let reader = task::spawn("reader", move || {
            let _value = reading.read();
            time::now_ns()
        });
        assert_eq!(reader.join(), 100, "the reader enters beside the first one once the writer is gone");
        assert!(writer.join());
        drop(first);
    });
}

#[test]
fn waits_and_locks_have_time_limits() {
    Sim::new(3).run(|| {
        let pair = Arc::new((Mutex::new(false), Condvar::new()));
        let mut ready = pair.0.lock();
        assert!(pair.1.wait_for(&mut ready, Duration::from_nanos(500)).timed_out());
        assert_eq!(time::now_ns(), 500);
        let other = {
            let pair = Arc::clone(&pair);
            task::spawn("other", move || {
                assert!(pair.0.try_lock_for(Duration::from_nanos(100)).is_none());
                assert_eq!(time::now_ns(), 600);
                *pair.0.lock() = true;
                pair.1.notify_one();
            })
        };
        time::sleep_ns(200);
        pair.1.wait_while(&mut ready, |ready| !*ready);
        assert_eq!(time::now_ns(), 700);
        other.join();
    });
}

#[test]
fn a_new_task_is_not_woken_by_timers_of_an_old_one() {
    Sim::new(0).run(|| {
        let pair = Arc::new((Mutex::new(0), Condvar::new()));
        let wait = |long: bool| {
            let pair = Arc::clone(&pair);
            task::spawn("waiter", move || {
                let mut stage = pair.0.lock();
                if long {
                    pair.1.wait_for(&mut stage, Duration::from_nanos(1000));
                } else {
                    pair.1.wait(&mut stage);
                }
                time::now_ns()
            })
        };
        let first = wait(true);
        time::sleep_ns(10);
        pair.1.notify_all();
        assert_eq!(first.join(), 10);
        let second = wait(false);
        time::sleep_ns(5000);
        pair.1.notify_all();
        assert_eq!(second.join(), 5010, "it takes the first one's place, but not its time limit");
    });
}

#[test]
fn a_lock_serves_both_worlds_in_turn() {
    static COUNT: Mutex<u32> = Mutex::new(0);
    for seed in 0..3 {
        *COUNT.lock() += 1;
        Sim::new(seed).run(|| {
            let tasks: Vec<_> = (0..3)
                .map(|_| {
                    task::spawn("counter", || {
                        let mut count = COUNT.lock();
                        time::sleep_ns(5);
                        *count += 1;
                    })
                })
                .collect();
            tasks.into_iter().for_each(task::JoinHandle::join);
        });
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| *COUNT.lock() += 1);
            }
        });
    }
    assert_eq!(*COUNT.lock(), 21);
}

#[test]
fn a_lock_held_by_a_thread_outside_is_waited_for() {
    static LOCK: Mutex<u32> = Mutex::new(0);
    let held = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut value = LOCK.lock();
            held.wait();
            std::thread::sleep(Duration::from_millis(50));
            *value = 1;
        });
        held.wait();
        Sim::new(0).run(|| assert_eq!(*LOCK.lock(), 1));
    });
}

#[test]
fn a_panic_tells_task_time_and_seed() {
    let failure = Sim::new(42)
        .try_run(|| {
            task::spawn("careless", || {
                time::sleep_ns(1234);
                panic!("lost my way");
            });
            time::sleep_ns(SECOND);
        })
        .unwrap_err();
    assert_eq!((failure.kind, failure.seed, failure.time_ns), (FailureKind::Panic, 42, 1234));
    let text = failure.to_string();
    for part in ["lost my way", "virtual_time.rs:", "task 2 'careless'", "1.234 µs", "seed 42"] {
        assert!(text.contains(part), "'{part}' is missing in: {text}");
    }
}

#[test]
fn a_lock_order_deadlock_names_the_circle() {
    let failure = Sim::new(0)
        .try_run(|| {
            let locks = Arc::new((Mutex::new(()), Mutex::new(())));
            let other = Arc::clone(&locks);
            let task = task::spawn("second then first", move || {
                let _second = other.1.lock();
                time::sleep_ns(10);
                let _first = other.0.lock();
            });
            let _first = locks.0.lock();
            time::sleep_ns(10);
            let _second = locks.1.lock();
            task.join();
        })
        .unwrap_err();
    assert_eq!(failure.kind, FailureKind::Deadlock);
    let text = failure.to_string();
    for part in [
        "circle",
        "task 1 'main' waits for lock",
        "task 2 'second then first' waits for lock",
        "held by task 1 'main'",
    ] {
        assert!(text.contains(part), "'{part}' is missing in: {text}");
    }
}

#[test]
fn deadlocks_of_one_are_found() {
    let again = Sim::new(0).try_run(|| {
        let lock = Mutex::new(());
        let _held = lock.lock();
        let _again = lock.lock();
    });
    assert_eq!(again.unwrap_err().kind, FailureKind::Deadlock);
    let silence = Sim::new(0).try_run(|| {
        let condvar = Condvar::named("the day that never comes");
        let lock = Mutex::new(());
        condvar.wait(&mut lock.lock());
    });
    let failure = silence.unwrap_err();
    assert_eq!(failure.kind, FailureKind::Deadlock);
    assert!(failure.message.contains("task 1 'main' waits for the day that never comes"), "{failure}");
}

#[test]
fn a_reader_behind_a_waiting_writer_is_a_deadlock() {
    let failure = Sim::new(0)
        .try_run(|| {
            let lock = Arc::new(RwLock::new(()));
            let _first = lock.read();
            let writer = Arc::clone(&lock);
            task::spawn("writer", move || drop(writer.write()));
            time::sleep_ns(1);
            drop(lock.read_recursive());
            let _second = lock.read();
        })
        .unwrap_err();
    assert_eq!(failure.kind, FailureKind::Deadlock);
}

#[test]
fn livelocks_and_endless_worlds_end() {
    let livelock = Sim::new(0).livelock_after(10_000).try_run(|| {
        task::spawn("polite", || {
            loop {
                task::yield_now();
            }
        });
        loop {
            task::yield_now();
        }
    });
    assert_eq!(livelock.unwrap_err().kind, FailureKind::Livelock);
    let endless = Sim::new(0).try_run(|| {
        task::spawn("periodic", || {
            loop {
                time::sleep_ns(SECOND);
            }
        });
        let lock = Mutex::new(());
        Condvar::new().wait(&mut lock.lock());
    });
    assert_eq!(endless.unwrap_err().kind, FailureKind::TimeLimit);
}

#[test]
fn spinning_on_a_flag_lets_time_pass() {
    Sim::new(0).run(|| {
        let flag = Arc::new(AtomicUsize::new(0));
        let setter = Arc::clone(&flag);
        task::spawn("setter", move || {
            time::sleep_ns(1_000_000);
            setter.store(1, Ordering::Relaxed);
        });
        while flag.load(Ordering::Relaxed) == 0 {
            task::yield_now();
        }
        assert_eq!(time::now_ns(), 1_000_000);
    });
}

#[test]
fn what_is_left_at_the_end_is_dropped() {
    struct Noted(Arc<AtomicUsize>);
    impl Drop for Noted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let dropped = Arc::new(AtomicUsize::new(0));
    Sim::new(0).run(|| {
        let lock = Arc::new(Mutex::new(()));
        for i in 0..30 {
            let (noted, lock) = (Noted(Arc::clone(&dropped)), Arc::clone(&lock));
            task::spawn("endless", move || {
                let _noted = noted;
                match i % 3 {
                    0 => Condvar::new().wait(&mut Mutex::new(()).lock()),
                    1 => time::sleep_ns(u64::MAX),
                    _ => {
                        let _guard = lock.lock();
                        time::sleep_ns(u64::MAX);
                    }
                }
            });
        }
        time::sleep_ns(1);
        // These never get to run.
        for _ in 0..5 {
            let noted = Noted(Arc::clone(&dropped));
            task::spawn("too late", move || drop(noted));
        }
    });
    assert_eq!(dropped.load(Ordering::Relaxed), 35);
}

#[test]
fn processors_are_shared() {
    let two = cpu::HostProfile { cores: 2, slice_ns: 1_000, ..cpu::HostProfile::default() };
    Sim::new(0).host(two).run(|| {
        assert_eq!(cpu::count(), 2);
        let tasks: Vec<_> = (0..4).map(|_| task::spawn("worker", || cpu::charge_ns(10_000))).collect();
        tasks.into_iter().for_each(task::JoinHandle::join);
        assert_eq!(time::now_ns(), 20_000, "four times 10 µs of work on two processors");
    });
}

#[test]
fn a_destructor_that_joins_does_not_stop_a_failing_world() {
    struct Server(Option<task::JoinHandle<u32>>);
    impl Drop for Server {
        fn drop(&mut self) {
            self.0.take().map(task::JoinHandle::join);
        }
    }
    for kind in 0..3 {
        let failure = Sim::new(kind)
            .try_run(|| {
                let _server = Server(Some(task::spawn("server", || {
                    time::sleep_ns(u64::MAX);
                    7
                })));
                let _second = task::spawn("second owner", || {
                    let _server = Server(Some(task::spawn("server", || {
                        Condvar::new().wait(&mut Mutex::new(()).lock());
                        7
                    })));
                    time::sleep_ns(u64::MAX);
                });
                time::sleep_ns(10);
                assert!(kind != 0, "main fails");
                task::spawn("careless", || panic!("another fails")).join();
            })
            .unwrap_err();
        assert_eq!(failure.kind, FailureKind::Panic);
        assert!(failure.message.contains("fails"), "{failure}");
    }
}
