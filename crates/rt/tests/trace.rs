//! The trace: well-formed, and one seed writes the same bytes in two processes.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use amphi_rt::sync::{Mutex, channel};
use amphi_rt::{Schedule, Sim, cpu, random, task, time, trace};
use std::path::Path;
use std::process::Command;

/// Set for the processes that only write a trace.
const PATH_VARIABLE: &str = "AMPHI_RT_TEST_TRACE";

fn traced_world(seed: u64, path: &Path) {
    let schedule = Schedule::Random { per_mille: 200, delay_ns: 1000 };
    Sim::new(seed).host(cpu::HostProfile::dev()).schedule(schedule).trace(path).run(|| {
        let firmware = cpu::Processors::new("firmware \"A\"", 1);
        let (lock, (sender, receiver)) = (Mutex::new(0), channel(2));
        task::scope(|scope| {
            for _ in 0..3 {
                let (lock, firmware, sender) = (&lock, &firmware, sender.clone());
                scope.spawn("writer", move || {
                    for _ in 0..20 {
                        let _span = trace::span("operation");
                        cpu::charge(cpu::Work::Syscall);
                        *lock.lock() += 1;
                        firmware.run_ns(random::below(500));
                        sender.send(random::u64()).expect("the receiver lives");
                        trace::mark("written");
                    }
                });
            }
            drop(sender);
            scope.spawn("reader", move || receiver.for_each(|number| time::sleep_ns(number % 700)));
        });
    });
}

#[test]
fn one_seed_is_one_file_in_two_processes() {
    if let Some(path) = std::env::var_os(PATH_VARIABLE) {
        traced_world(9, Path::new(&path));
        return;
    }
    let directory = std::env::temp_dir().join(format!("amphi-rt-trace-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("the temporary directory is writable");
    let written: Vec<Vec<u8>> = (0..2)
        .map(|i| {
            let path = directory.join(format!("{i}.json"));
            let status = Command::new(std::env::current_exe().expect("a test has a path"))
                .args(["one_seed_is_one_file_in_two_processes", "--exact"])
                .env(PATH_VARIABLE, &path)
                .output()
                .expect("this test can be started again");
            assert!(status.status.success());
            std::fs::read(path).expect("the trace was written")
        })
        .collect();
    let other = directory.join("other.json");
    traced_world(10, &other);
    let other = std::fs::read(other).expect("the trace was written");
    std::fs::remove_dir_all(&directory).expect("the files are ours");
    assert!(written[0].len() > 10_000, "the world leaves a trace");
    assert!(written[0] == written[1], "two processes wrote different traces for one seed");
    assert!(written[0] != other, "another seed is another history");

    let json: serde_json::Value = serde_json::from_slice(&written[0]).expect("a trace is JSON");
    let events = json["traceEvents"].as_array().expect("a list of events");
    for (kind, name) in
        [("i", "written"), ("X", "operation"), ("X", "sleep"), ("X", "cpu"), ("M", "process_name")]
    {
        assert!(
            events.iter().any(|event| event["ph"] == kind && event["name"] == name),
            "no event {kind} {name}"
        );
    }
    assert!(events.iter().any(|event| event["args"]["name"] == "firmware \"A\""));
    assert!(
        events.iter().all(|event| event["ph"] == "M" || event["ts"].as_f64().is_some_and(|ts| ts >= 0.0))
    );
}
