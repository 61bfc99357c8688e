//! What holds in real and in virtual time alike: each property is checked on threads, and in Sims with many
//! seeds and preemption.

use amphi_rt::sync::{
    Barrier, Condvar, Mutex, Once, OnceCell, ReceiveError, RwLock, Semaphore, SendError, channel,
};
use amphi_rt::{Sim, cpu, random, task, time};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Runs `property` on threads and under 60 seeds.
fn in_both_worlds(property: impl Fn()) {
    for _ in 0..20 {
        property();
    }
    Sim::explore(0..60).run(property);
}

#[test]
fn a_mutex_loses_no_update() {
    in_both_worlds(|| {
        let count = Mutex::new(0);
        task::scope(|scope| {
            for _ in 0..4 {
                scope.spawn("adder", || {
                    for _ in 0..100 {
                        let before = *count.lock();
                        let mut guard = count.lock();
                        assert!(*guard >= before);
                        *guard += 1;
                    }
                });
            }
        });
        assert_eq!(*count.lock(), 400);
    });
}

#[test]
fn readers_never_see_half_a_write() {
    in_both_worlds(|| {
        let pair = RwLock::new((0, 0));
        task::scope(|scope| {
            for _ in 0..2 {
                scope.spawn("writer", || {
                    for _ in 0..50 {
                        let mut pair = pair.write();
                        pair.0 += 1;
                        task::point();
                        pair.1 += 1;
                    }
                });
                scope.spawn("reader", || {
                    for _ in 0..50 {
                        let pair = pair.read();
                        assert_eq!(pair.0, pair.1);
                    }
                });
            }
        });
        assert_eq!(*pair.read(), (100, 100));
    });
}

#[test]
fn a_channel_keeps_order_and_loses_nothing() {
    in_both_worlds(|| {
        let (sender, receiver) = channel(3);
        let received = task::scope(|scope| {
            for producer in 0..3_usize {
                let sender = sender.clone();
                scope.spawn("producer", move || {
                    for number in 0..50 {
                        sender.send((producer, number)).expect("the receiver lives");
                    }
                });
            }
            drop(sender);
            scope.spawn("consumer", move || receiver.collect::<Vec<(usize, usize)>>()).join()
        });
        for producer in 0..3 {
            let numbers: Vec<usize> =
                received.iter().filter(|(from, _)| *from == producer).map(|(_, number)| *number).collect();
            assert_eq!(numbers, (0..50).collect::<Vec<_>>());
        }
    });
}

#[test]
fn a_channel_says_why_not() {
    in_both_worlds(|| {
        let (sender, receiver) = channel(1);
        assert_eq!(receiver.try_receive(), Err(ReceiveError::Empty));
        assert_eq!(receiver.receive_for(Duration::from_micros(50)), Err(ReceiveError::Empty));
        sender.send(1).expect("there is room");
        assert_eq!(sender.try_send(2), Err(SendError::Full(2)));
        assert_eq!(receiver.receive(), Ok(1));
        drop(receiver);
        assert_eq!(sender.send(3), Err(SendError::Closed(3)));
        let (sender, receiver) = channel::<u8>(1);
        drop(sender);
        assert_eq!(receiver.receive(), Err(ReceiveError::Closed));
    });
}

#[test]
fn a_semaphore_gives_no_more_than_it_has() {
    in_both_worlds(|| {
        let (semaphore, inside) = (Semaphore::new(3), AtomicUsize::new(0));
        task::scope(|scope| {
            for i in 0..6 {
                let (semaphore, inside) = (&semaphore, &inside);
                scope.spawn("user", move || {
                    for _ in 0..20 {
                        let count = 1 + i % 3;
                        let _permits = semaphore.acquire(count);
                        assert!(inside.fetch_add(count, Ordering::SeqCst) + count <= 3);
                        task::point();
                        inside.fetch_sub(count, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(semaphore.available(), 3);
        let all = semaphore.try_acquire(3).expect("nobody holds any");
        assert!(semaphore.try_acquire(1).is_none());
        assert!(semaphore.acquire_for(1, Duration::from_micros(50)).is_none());
        drop(all);
        assert!(semaphore.acquire_for(3, Duration::from_micros(50)).is_some());
    });
}

#[test]
fn once_is_once() {
    in_both_worlds(|| {
        let (once, cell, calls) = (Once::new(), OnceCell::new(), AtomicUsize::new(0));
        task::scope(|scope| {
            for i in 0..4 {
                let (once, cell, calls) = (&once, &cell, &calls);
                scope.spawn("caller", move || {
                    once.call_once(|| {
                        time::sleep_ns(100);
                        calls.fetch_add(1, Ordering::SeqCst);
                    });
                    assert_eq!(calls.load(Ordering::SeqCst), 1, "done when any call returns");
                    cell.get_or_init(|| i)
                });
            }
        });
        assert!(once.is_completed() && cell.get().is_some());
    });
}

#[test]
fn a_barrier_opens_when_all_have_come() {
    in_both_worlds(|| {
        let (barrier, came, last) = (Barrier::new(4), AtomicUsize::new(0), AtomicUsize::new(0));
        task::scope(|scope| {
            for _ in 0..4 {
                scope.spawn("comer", || {
                    for round in 1..=5 {
                        came.fetch_add(1, Ordering::SeqCst);
                        if barrier.wait() {
                            last.fetch_add(1, Ordering::SeqCst);
                        }
                        assert!(came.load(Ordering::SeqCst) >= 4 * round);
                    }
                });
            }
        });
        assert_eq!(last.load(Ordering::SeqCst), 5);
    });
}

#[test]
fn notifications_are_not_lost() {
    in_both_worlds(|| {
        let (turn, changed) = (Mutex::new(0), Condvar::new());
        task::scope(|scope| {
            for me in 0..3 {
                let (turn, changed) = (&turn, &changed);
                scope.spawn("player", move || {
                    for _ in 0..30 {
                        let mut turn = turn.lock();
                        changed.wait_while(&mut turn, |turn| *turn % 3 != me);
                        *turn += 1;
                        changed.notify_all();
                    }
                });
            }
        });
        assert_eq!(*turn.lock(), 90);
    });
}

#[test]
fn waiting_has_an_end() {
    in_both_worlds(|| {
        let (lock, condvar) = (Mutex::new(()), Condvar::new());
        let start = time::now_ns();
        assert!(condvar.wait_for(&mut lock.lock(), Duration::from_micros(100)).timed_out());
        assert!(time::now_ns() >= start + 100_000);
        let guard = lock.lock();
        task::scope(|scope| {
            scope.spawn("impatient", || assert!(lock.try_lock_for(Duration::from_micros(100)).is_none()));
        });
        drop(guard);
        assert!(lock.try_lock().is_some());
    });
}

#[test]
fn scoped_tasks_borrow_and_return() {
    in_both_worlds(|| {
        let mut numbers = vec![1, 2, 3];
        let sum = task::scope(|scope| {
            let doubled: Vec<_> =
                numbers.iter_mut().map(|number| scope.spawn("doubler", move || *number *= 2)).collect();
            doubled.into_iter().for_each(task::ScopedJoinHandle::join);
            1
        });
        assert_eq!((numbers, sum), (vec![2, 4, 6], 1));
    });
}

#[test]
fn tasks_have_ids_processors_and_chance() {
    in_both_worlds(|| {
        let ids: Vec<u64> =
            (0..5).map(|_| task::spawn("named", task::id)).map(task::JoinHandle::join).collect();
        let mut unique = ids.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), 5);
        assert!(ids.iter().all(|id| *id != 0 && *id != task::id()));
        assert!(cpu::current() < cpu::count());
        assert!((0..100).all(|_| random::below(7) < 7));
        let device = cpu::Processors::new("firmware", 2);
        let start = time::now_ns();
        let ends: Vec<u64> = (0..4).map(|_| device.reserve_from_ns(start, 1000)).collect();
        assert_eq!(ends, [start + 1000, start + 1000, start + 2000, start + 2000]);
        time::sleep_until_ns(ends[3]);
        assert!(time::now_ns() >= start + 2000);
        assert_eq!(device.busy_ns(), 4000);
    });
}

#[test]
#[should_panic(expected = "a scoped task panicked")]
fn a_scope_passes_panics_on() {
    task::scope(|scope| {
        scope.spawn("careless", || panic!("on purpose"));
    });
}
