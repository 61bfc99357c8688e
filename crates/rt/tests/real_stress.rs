//! The real-time primitives under as much contention as a machine gives, without a Sim: what a race detector
//! is run on.
//!
//! Under ThreadSanitizer:
//!
//! ```sh
//! export RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer"
//! cargo +nightly test -p amphi-rt --test real_stress --target x86_64-unknown-linux-gnu
//! ```

use amphi_rt::sync::{Condvar, Mutex, RwLock, Semaphore, channel};
use amphi_rt::{random, task};
use std::time::Duration;

const ROUNDS: u64 = 3_000;
const TASKS: u64 = 4;

/// Data that is wrong as soon as two tasks are at it. Plain memory, so that a race detector sees an access
/// without a lock.
#[derive(Default)]
struct Plain {
    a: u64,
    b: u64,
}

impl Plain {
    fn step(&mut self) {
        assert_eq!(self.a, self.b);
        self.a += 1;
        if random::below(8) == 0 {
            task::yield_now();
        }
        self.b += 1;
    }
}

#[test]
fn mutexes_and_timed_mutexes() {
    let plain = Mutex::new(Plain::default());
    let done = task::scope(|scope| {
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| {
                scope.spawn("stress", || {
                    (0..ROUNDS)
                        .filter(|round| {
                            let guard = match round % 3 {
                                0 => Some(plain.lock()),
                                1 => plain.try_lock(),
                                _ => plain.try_lock_for(Duration::from_micros(random::below(20))),
                            };
                            guard.map(|mut plain| plain.step()).is_some()
                        })
                        .count() as u64
                })
            })
            .collect();
        tasks.into_iter().map(task::ScopedJoinHandle::join).sum::<u64>()
    });
    assert_eq!(plain.lock().a, done);
    assert!(done >= TASKS * ROUNDS / 3);
}

#[test]
fn reader_writer_locks() {
    let plain = RwLock::new(Plain::default());
    task::scope(|scope| {
        for _ in 0..TASKS {
            scope.spawn("stress", || {
                for round in 0..ROUNDS {
                    if round % 4 == 0 {
                        plain.write().step();
                    } else {
                        let plain = plain.read();
                        assert_eq!(plain.a, plain.b);
                    }
                }
            });
        }
    });
    assert_eq!(plain.read().a, TASKS * ROUNDS / 4);
}

/// Tokens go round among the tasks; a lost notification stops it, a doubled one overtakes.
#[test]
fn condition_variables_with_one_and_with_all() {
    for all in [false, true] {
        let (state, changed) = (Mutex::new((0_u64, 0_u64)), [const { Condvar::new() }; TASKS as usize]);
        task::scope(|scope| {
            for me in 0..TASKS {
                let (state, changed) = (&state, &changed);
                scope.spawn("stress", move || {
                    let place = if all { 0 } else { me as usize };
                    for _ in 0..ROUNDS / 2 {
                        let mut state = state.lock();
                        while state.0 % TASKS != me {
                            if state.0 % 5 == 0 {
                                changed[place].wait_for(&mut state, Duration::from_micros(random::below(50)));
                            } else {
                                changed[place].wait(&mut state);
                            }
                        }
                        state.0 += 1;
                        state.1 += me;
                        if all {
                            changed[0].notify_all();
                        } else {
                            changed[(state.0 % TASKS) as usize].notify_one();
                        }
                    }
                });
            }
        });
        assert_eq!(*state.lock(), (TASKS * (ROUNDS / 2), (ROUNDS / 2) * TASKS * (TASKS - 1) / 2));
    }
}

#[test]
fn channels_and_semaphores() {
    let (sender, receiver) = channel(2);
    let permits = Semaphore::new(2);
    let sum = task::scope(|scope| {
        for _ in 0..TASKS {
            let (sender, permits) = (sender.clone(), &permits);
            scope.spawn("sender", move || {
                for number in 0..ROUNDS / 2 {
                    let _permit = permits.acquire(1);
                    sender.send(number).expect("a receiver lives");
                }
            });
        }
        drop(sender);
        let receivers: Vec<_> = (0..2)
            .map(|_| {
                let receiver = receiver.clone();
                scope.spawn("receiver", move || receiver.sum::<u64>())
            })
            .collect();
        receivers.into_iter().map(task::ScopedJoinHandle::join).sum::<u64>()
    });
    assert_eq!(sum, TASKS * (0..ROUNDS / 2).sum::<u64>());
    assert_eq!(permits.available(), 2);
}
