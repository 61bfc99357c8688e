//! Programs made at random, of everything that rt offers, under every kind of schedule: each runs twice with
//! one history, and ends with its work done or, since it takes locks in any order, with a deadlock that is
//! reported in the same words.

use amphi_rt::random::Generator;
use amphi_rt::sync::{Condvar, Mutex, RwLock, Semaphore, channel};
use amphi_rt::{FailureKind, Schedule, Sim, cpu, random, task, time};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Runs in which tasks could not be unwound.
static ABANDONED: AtomicU64 = AtomicU64::new(0);

struct World {
    log: Mutex<Vec<(u64, u64, u64)>>,
    locks: [Mutex<u64>; 3],
    shared: RwLock<u64>,
    tokens: Semaphore,
    bell: (Mutex<u64>, Condvar),
}

/// Takes a lock, waits and works when dropped: also while its task is unwound.
struct Farewell(Arc<World>, usize);

impl Drop for Farewell {
    fn drop(&mut self) {
        let mut count = self.0.locks[self.1].lock();
        task::yield_now();
        time::sleep_ns(self.1 as u64);
        self.0.bell.1.wait_for(&mut self.0.bell.0.lock(), Duration::from_nanos(5));
        *count += 1;
    }
}

/// One task's program: so many steps, decided by its own seed; some start further tasks.
fn program(world: &Arc<World>, seed: u64, depth: u32) {
    let mut chance = Generator::new(seed);
    let (sender, receiver) = channel(1);
    let mut children = Vec::new();
    let mut farewells = Vec::new();
    for _ in 0..12 {
        match chance.below(15) {
            0 => time::sleep_ns(chance.below(200)),
            1 => task::yield_now(),
            2 => cpu::charge_ns(chance.below(100)),
            3 | 4 => *world.locks[chance.below(3) as usize].lock() += 1,
            5 => {
                // In any order: here programs may deadlock.
                let mut first = world.locks[chance.below(3) as usize].lock();
                time::sleep_ns(chance.below(3) * 10);
                if let Some(mut second) =
                    world.locks[chance.below(3) as usize].try_lock_for(Duration::from_nanos(30))
                {
                    *second += 1;
                } else if chance.below(4) == 0 {
                    *world.locks[chance.below(3) as usize].lock() += 1;
                }
                *first += 1;
            }
            6 => drop(world.shared.read()),
            7 => *world.shared.write() += 1,
            8 => {
                let _permits = world.tokens.acquire(1 + chance.below(2) as usize);
                time::sleep_ns(chance.below(20));
            }
            9 => {
                let mut rung = world.bell.0.lock();
                world.bell.1.wait_for(&mut rung, Duration::from_nanos(chance.below(100)));
            }
            10 => {
                *world.bell.0.lock() += 1;
                if chance.below(2) == 0 {
                    world.bell.1.notify_one();
                } else {
                    world.bell.1.notify_all();
                }
            }
            11 if depth < 2 => {
                let (world, sender, seed) = (Arc::clone(world), sender.clone(), chance.next());
                children.push(task::spawn("child", move || {
                    program(&world, seed, depth + 1);
                    sender.send(seed).is_ok()
                }));
            }
            13 => farewells.push(Farewell(Arc::clone(world), chance.below(3) as usize)),
            12 => drop(receiver.receive_for(Duration::from_nanos(50))),
            _ => world.log.lock().push((time::now_ns(), task::id(), random::u64())),
        }
    }
    drop(sender);
    assert!(receiver.count() <= children.len());
    for child in children {
        let id = task::id();
        let _ = child.join();
        world.log.lock().push((time::now_ns(), id, 0));
    }
}

/// What happened (time, task, a random number), or how it failed.
type History = Result<Vec<(u64, u64, u64)>, (FailureKind, String)>;

fn history(seed: u64) -> History {
    let schedule = match seed % 3 {
        0 => Schedule::Seeded,
        1 => Schedule::Random { per_mille: 150, delay_ns: 50 },
        _ => Schedule::Pct { depth: 3, points: 0 },
    };
    let host = cpu::HostProfile { cores: 2, wake_ns: seed % 2 * 7, ..cpu::HostProfile::default() };
    let world = Arc::new(World {
        log: Mutex::new(Vec::new()),
        locks: [const { Mutex::new(0) }; 3],
        shared: RwLock::new(0),
        tokens: Semaphore::new(2),
        bell: (Mutex::new(0), Condvar::new()),
    });
    let result = Sim::new(seed).host(host).schedule(schedule).try_run(|| {
        let tasks: Vec<_> = (0..4)
            .map(|i| {
                let world = Arc::clone(&world);
                task::spawn("root", move || program(&world, seed * 100 + i, 0))
            })
            .collect();
        tasks.into_iter().for_each(task::JoinHandle::join);
        world.log.lock().push((time::now_ns(), 0, random::u64()));
    });
    match result {
        Ok(()) => {
            assert!(
                world.locks.iter().all(|lock| lock.try_lock().is_some()),
                "seed {seed}: a lock is still held"
            );
            assert!(world.shared.try_write().is_some(), "seed {seed}: the shared lock is still held");
            assert_eq!(world.tokens.available(), 2, "seed {seed}: permits are missing");
            Ok(std::mem::take(&mut *world.log.lock()))
        }
        Err(failure) => {
            assert_eq!(Arc::strong_count(&world), 1, "seed {seed}: a task was not unwound");
            assert!(
                world.locks.iter().all(|lock| lock.try_lock().is_some()),
                "seed {seed}: a lock is still held"
            );
            Err((failure.kind, failure.to_string()))
        }
    }
}

#[test]
fn have_one_history_per_seed() {
    let (mut done, mut deadlocks) = (0, 0);
    for seed in 0..1500 {
        let (first, second) = (history(seed), history(seed));
        assert_eq!(first, second, "seed {seed} has two histories");
        match first {
            Ok(log) => {
                assert!(log.is_sorted_by_key(|entry| entry.0), "seed {seed}: time went back");
                done += 1;
            }
            Err((FailureKind::Deadlock, text)) => {
                assert!(text.contains("waits for lock"), "seed {seed}: {text}");
                deadlocks += 1;
            }
            Err((kind, text)) => panic!("seed {seed}: {kind:?}: {text}"),
        }
    }
    let abandoned = ABANDONED.load(Ordering::Relaxed) / 2;
    println!("{done} programs ended, {deadlocks} deadlocked, {abandoned} of these could not be unwound");
    assert!(abandoned * 4 < deadlocks, "{abandoned} of {deadlocks} deadlocked programs could not be unwound");
    assert!(
        done > 100 && deadlocks > 10,
        "{done} programs ended, {deadlocks} deadlocked: too one-sided to say much"
    );
}
