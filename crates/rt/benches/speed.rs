//! What rt costs: task switches, locks in virtual and in real time beside parking_lot's, stacks.
//!
//! `cargo bench -p amphi-rt`. Goals: at least 10 million switches a second with 200 tasks; a lock and unlock
//! in virtual time in at most 15 ns; in real time within 2 ns of parking_lot.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, missing_docs)]

use amphi_rt::sync::{Mutex, RwLock};
use amphi_rt::{Sim, task, time};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use std::time::{Duration, Instant};

const TASKS: u64 = 200;

/// Time for `per_task` rounds of `step` in each of 200 tasks.
fn in_tasks(rounds: u64, step: impl Fn(u64) + Send + Copy + 'static) -> Duration {
    let per_task = rounds.div_ceil(TASKS);
    Sim::new(1).livelock_after(u64::MAX).time_limit_ns(u64::MAX - 1).run(|| {
        let tasks: Vec<_> = (0..TASKS)
            .map(|i| {
                task::spawn("bench", move || {
                    for _ in 0..per_task {
                        step(i);
                    }
                })
            })
            .collect();
        let started = Instant::now();
        tasks.into_iter().for_each(task::JoinHandle::join);
        started.elapsed()
    })
}

fn switches(c: &mut Criterion) {
    let mut group = c.benchmark_group("switch, 200 tasks");
    group.throughput(Throughput::Elements(1)).sample_size(20).measurement_time(Duration::from_secs(3));
    group.bench_function("yield", |b| b.iter_custom(|rounds| in_tasks(rounds, |_| task::yield_now())));
    group.bench_function("sleep", |b| b.iter_custom(|rounds| in_tasks(rounds, |i| time::sleep_ns(100 + i))));
    group.finish();
}

fn locks(c: &mut Criterion) {
    let mut group = c.benchmark_group("uncontended lock and unlock");
    group.sample_size(50).measurement_time(Duration::from_secs(2));
    let (ours, theirs) = (Mutex::new(0_u64), parking_lot::Mutex::new(0_u64));
    let (our_rw, their_rw) = (RwLock::new(0_u64), parking_lot::RwLock::new(0_u64));
    for round in 0..2 {
        group.bench_function(BenchmarkId::new("parking_lot mutex", round), |b| {
            b.iter(|| *black_box(&theirs).lock() += 1)
        });
        group.bench_function(BenchmarkId::new("rt mutex, real", round), |b| {
            b.iter(|| *black_box(&ours).lock() += 1)
        });
        group.bench_function(BenchmarkId::new("parking_lot read", round), |b| {
            b.iter(|| *black_box(&their_rw).read())
        });
        group.bench_function(BenchmarkId::new("rt read, real", round), |b| {
            b.iter(|| *black_box(&our_rw).read())
        });
    }
    group.bench_function("rt mutex, virtual", |b| {
        b.iter_custom(|rounds| {
            Sim::new(1).run(|| {
                let started = Instant::now();
                for _ in 0..rounds {
                    *black_box(&ours).lock() += 1;
                }
                started.elapsed()
            })
        });
    });
    group.bench_function("rt read, virtual", |b| {
        b.iter_custom(|rounds| {
            Sim::new(1).run(|| {
                let started = Instant::now();
                for _ in 0..rounds {
                    black_box(*black_box(&our_rw).read());
                }
                started.elapsed()
            })
        });
    });
    group.finish();
}

fn tasks(c: &mut Criterion) {
    let mut group = c.benchmark_group("task");
    group.sample_size(20).measurement_time(Duration::from_secs(2));
    group.bench_function("spawn and join on a pooled stack", |b| {
        b.iter_custom(|rounds| {
            Sim::new(1).run(|| {
                let started = Instant::now();
                for i in 0..rounds {
                    assert_eq!(task::spawn("short", move || i).join(), i);
                }
                started.elapsed()
            })
        });
    });
    group.finish();
}

criterion_group!(benches, switches, locks, tasks);
criterion_main!(benches);
