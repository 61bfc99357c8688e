//! The limits: many tasks, much blocking, deep stacks.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use amphi_rt::sync::{Condvar, Mutex};
use amphi_rt::{FailureKind, Sim, cpu, task, time};
use std::sync::Arc;
use std::time::Duration;

/// Resident memory of this process, in bytes.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    let pages: u64 =
        statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("its second field is a number");
    pages * rustix::param::page_size() as u64
}

#[test]
fn ten_thousand_tasks_fit_in_two_gigabytes() {
    let before = resident();
    let used = Sim::new(0).run(|| {
        let open = Arc::new((Mutex::new(false), Condvar::new()));
        let tasks: Vec<_> = (0..10_000)
            .map(|i| {
                let open = Arc::clone(&open);
                task::spawn("one of many", move || {
                    time::sleep_ns(i % 100);
                    let mut is_open = open.0.lock();
                    open.1.wait_while(&mut is_open, |is_open| !*is_open);
                })
            })
            .collect();
        time::sleep_ns(1000);
        let used = resident() - before;
        *open.0.lock() = true;
        open.1.notify_all();
        tasks.into_iter().for_each(task::JoinHandle::join);
        used
    });
    println!("10,000 tasks use {} MB", used >> 20);
    assert!(used < 2 << 30, "10,000 tasks use {} MB", used >> 20);
}

#[test]
fn blocking_the_thread_is_found() {
    let failure = Sim::new(5)
        .blocking_limit(Some(Duration::from_millis(300)))
        .try_run(|| {
            task::spawn("blocker", || {
                let lock = Arc::new(std::sync::Mutex::new(()));
                let (other, (held, is_held)) = (Arc::clone(&lock), std::sync::mpsc::channel());
                std::thread::spawn(move || {
                    let _guard = other.lock();
                    held.send(()).expect("the other end lives");
                    std::thread::sleep(Duration::from_millis(1500));
                });
                is_held.recv().expect("the thread sends");
                drop(lock.lock());
            })
            .join();
        })
        .expect_err("the task blocked for 1.5 s");
    assert_eq!(failure.kind, FailureKind::Blocked);
    assert!(failure.message.contains("task 'blocker' blocked its OS thread"), "{failure}");
}

#[test]
fn computing_is_not_blocking() {
    Sim::new(5).blocking_limit(Some(Duration::from_millis(200))).run(|| {
        let started = std::time::Instant::now();
        while started.elapsed() < Duration::from_millis(700) {
            std::hint::spin_loop();
        }
        task::yield_now();
    });
}

#[test]
fn host_profiles_are_read_and_refused() {
    let dev = cpu::HostProfile::dev();
    assert!(dev.cores > 0 && dev.cost_ns(cpu::Work::Copy { bytes: 4096 }) > 0);
    assert!(cpu::HostProfile::from_toml("cores = 0").unwrap_err().to_string().contains("at least 1"));
    assert!(cpu::HostProfile::from_toml("corse = 2").unwrap_err().to_string().contains("corse"));
    let slow_wake = cpu::HostProfile { wake_ns: 5000, ..cpu::HostProfile::default() };
    Sim::new(0).host(slow_wake).run(|| {
        task::spawn("quick", || time::sleep_ns(100)).join();
        assert_eq!(time::now_ns(), 5100, "the joiner is woken at 100 ns and runs 5 µs later");
    });
}
