//! The goals of rt's speed as medians of short batches, taken in turn: what a busy machine does not blur.
//!
//! `cargo bench -p amphi-rt --bench medians`. A batch is so short that most batches are not interrupted by
//! other programs, and what is compared is measured alternately, so both sides see the same machine.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, missing_docs)]

use amphi_rt::sync::{Mutex, RwLock};
use amphi_rt::{Sim, random, task, time};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const BATCHES: usize = 4001;
const OPERATIONS: u32 = 500;

/// Nanoseconds per operation of each batch, sorted.
struct Times(Vec<f64>);

impl Times {
    fn percentile(&self, percent: usize) -> f64 {
        self.0[(self.0.len() - 1) * percent / 100]
    }
}

fn batch(operation: &mut dyn FnMut()) -> f64 {
    let started = Instant::now();
    operation();
    started.elapsed().as_nanos() as f64 / f64::from(OPERATIONS)
}

/// Runs the batches in turn and prints each one's median beside the first one's.
fn compare(title: &str, cases: &mut [(&str, &mut dyn FnMut())]) {
    let mut times: Vec<Vec<f64>> = vec![Vec::with_capacity(BATCHES); cases.len()];
    for _ in 0..BATCHES {
        for ((_, operation), times) in cases.iter_mut().zip(&mut times) {
            times.push(batch(*operation));
        }
    }
    println!("{title}");
    let mut base = None;
    for ((name, _), mut times) in cases.iter().zip(times) {
        times.sort_by(f64::total_cmp);
        let times = Times(times);
        let p50 = times.percentile(50);
        let base = *base.get_or_insert(p50);
        println!(
            "  {name:<32} p5 {:6.2} ns   p50 {p50:6.2} ns   {:+6.2} ns",
            times.percentile(5),
            p50 - base
        );
    }
}

fn locks() {
    let (ours, theirs) = (Mutex::new(0_u64), parking_lot::Mutex::new(0_u64));
    let (our_rw, their_rw) = (RwLock::new(0_u64), parking_lot::RwLock::new(0_u64));
    let mut their_lock = || (0..OPERATIONS).for_each(|_| *black_box(&theirs).lock() += 1);
    let mut our_lock = || (0..OPERATIONS).for_each(|_| *black_box(&ours).lock() += 1);
    let mut their_read = || (0..OPERATIONS).for_each(|_| _ = black_box(*black_box(&their_rw).read()));
    let mut our_read = || (0..OPERATIONS).for_each(|_| _ = black_box(*black_box(&our_rw).read()));
    let title = "lock and unlock, uncontended, real time (goal: within 2 ns)";
    compare(title, &mut [("parking_lot mutex", &mut their_lock), ("rt mutex", &mut our_lock)]);
    compare(
        "read and release, uncontended, real time",
        &mut [("parking_lot rwlock", &mut their_read), ("rt rwlock", &mut our_read)],
    );
    Sim::new(1).run(|| {
        compare(
            "in virtual time (goal: a mutex in 15 ns)",
            &mut [("rt mutex", &mut our_lock), ("rt rwlock, read", &mut our_read)],
        );
    });
}

/// Switches among 200 tasks, counted, over stretches of about 20 µs as one of them sees them.
fn switches(title: &str, step: impl Fn() + Send + Copy + 'static) {
    const TASKS: usize = 200;
    const STRETCHES: usize = 2000;
    static STEPS: AtomicU64 = AtomicU64::new(0);
    let counted = move || {
        STEPS.store(STEPS.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        step();
    };
    let mut times = Sim::new(1).livelock_after(u64::MAX).run(|| {
        for _ in 1..TASKS {
            task::spawn("bench", move || {
                loop {
                    counted();
                }
            });
        }
        let mut times = Vec::with_capacity(STRETCHES);
        while times.len() < STRETCHES {
            let (started, before) = (Instant::now(), STEPS.load(Ordering::Relaxed));
            while STEPS.load(Ordering::Relaxed) < before + 1000 {
                counted();
            }
            times.push(started.elapsed().as_nanos() as f64 / (STEPS.load(Ordering::Relaxed) - before) as f64);
        }
        times
    });
    times.sort_by(f64::total_cmp);
    let times = Times(times);
    let p50 = times.percentile(50);
    println!("  {title:<32} p5 {:6.2} ns   p50 {p50:6.2} ns   {:.1} M/s", times.percentile(5), 1000.0 / p50);
}

fn main() {
    locks();
    println!("task switches, 200 tasks (goal: 10 M/s)");
    static CONTENDED: Mutex<u64> = Mutex::new(0);
    switches("yield", task::yield_now);
    switches("sleep 100 ns", || time::sleep_ns(100));
    switches("sleep a random time", || time::sleep_ns(1 + random::below(1000)));
    switches("lock held over a sleep", || {
        let mut count = CONTENDED.lock();
        time::sleep_ns(1);
        *count += 1;
    });
}
