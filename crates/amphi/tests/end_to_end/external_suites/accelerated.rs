//! The suites by `amphi run`: with descriptors of the kernel's, and with placeholders. Short, unless `--long`
//! is given, since the calls that the library does not take are those of the other runs.

use std::collections::BTreeSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::{
    BYTEFS, Mix, NOT_OFFERED, STRESSORS, assert_empty, can_run, is_long, leave, limited,
    pjdfstest_configuration, said,
};
use crate::accelerated::library;
use crate::rig::{Rig, command};
use crate::shared::{self, protections};

/// Options of `amphi run`.
const MODES: [&[&str]; 2] = [&["--real-descriptors"], &[]];

/// A suite's program by `amphi run`, killed after `seconds`.
fn accelerated(options: &[&str], seconds: u64, program: &str) -> Command {
    let amphi = command(&[]);
    let mut limited = limited(seconds, &amphi.get_program().to_string_lossy());
    limited.arg("run").args(options).args(["--", program]);
    limited
}

fn mounted(file_system: &str, size: &str) -> Rig {
    library();
    let rig = Rig::of(file_system, size);
    rig.mount_for_all();
    rig
}

/// What another file system is asked: by the queue, or by the device's commands.
pub fn on(file_system: &str) {
    if !can_run(&["pjdfstest", "fsx"]) {
        return;
    }
    once_each(&mounted(file_system, "1G"), if is_long() { 100_000 } else { 2000 });
    println!("fsx by amphi run on {file_system}: clean");
}

/// pjdfstest and so many operations of fsx, twice, with placeholders on a mount; then its end and a check.
fn once_each(rig: &Rig, operations: u64) {
    let options = MODES[1];
    pjdfstest_configuration(rig);
    pjdfstest_once(rig, options, None);
    for mix in [&QUEUE, &BOTH] {
        fsx_once(rig, options, mix, operations, 1);
    }
    leave(rig, "suites by amphi run");
}

/// Its tests in one process, until one of them changes who it is; with `--long` also each in a process of its
/// own.
#[test]
fn pjdfstest() {
    if !can_run(&["pjdfstest"]) {
        return;
    }
    let rig = mounted(BYTEFS, "1G");
    pjdfstest_configuration(&rig);
    for options in MODES {
        let report = pjdfstest_once(&rig, options, None);
        let names: BTreeSet<&str> = report
            .lines()
            .filter_map(|line| line.split_whitespace().next())
            .filter(|word| word.contains("::"))
            .collect();
        if is_long() {
            names.iter().for_each(|name| drop(pjdfstest_once(&rig, options, Some(name))));
        }
    }
    leave(&rig, "pjdfstest by amphi run");
}

/// All its tests, or one; what it reports.
fn pjdfstest_once(rig: &Rig, options: &[&str], only: Option<&str>) -> String {
    let mut command = accelerated(options, 600, "pjdfstest");
    command.args(["-c", &rig.path("pjdfstest.toml"), "-s", &rig.path(""), "-p", &rig.mount_point()]);
    command.args(only.map(|name| ["-e", name]).into_iter().flatten());
    let report = said(&command.output().unwrap());
    let summary = report.lines().rfind(|line| line.starts_with("Summary")).unwrap_or("no summary");
    assert!(summary.contains(": 0 failed"), "{options:?}: {summary}\n{report}");
    println!("pjdfstest by amphi run {options:?} {}: {summary}", only.unwrap_or("all"));
    report
}

/// What stays with the queue: nothing maps the file or gives it to another call that the library leaves.
const QUEUE: Mix = Mix {
    name: "queue",
    align: 1,
    length: 128 << 10,
    weights: &[
        ("read", 10),
        ("write", 10),
        ("truncate", 3),
        ("close_open", 1),
        ("fsync", 1),
        ("fdatasync", 1),
        ("punch_hole", 3),
        ("posix_fallocate", 3),
        ("mapread", 0),
        ("mapwrite", 0),
    ],
};

/// What goes through the queue is read through the kernel: by mappings, `sendfile` and copies.
const BOTH: Mix = Mix {
    name: "both",
    align: 1,
    length: 128 << 10,
    weights: &[
        ("read", 5),
        ("write", 10),
        ("truncate", 3),
        ("close_open", 2),
        ("punch_hole", 3),
        ("mapread", 5),
        ("mapwrite", 0),
        ("sendfile", 3),
        ("copy_file_range", 3),
    ],
};

fn fsx_once(rig: &Rig, options: &[&str], mix: &Mix, operations: u64, seed: u64) {
    let configuration = mix.write(rig);
    let file = rig.on_mount(&format!("{}-{}-{seed}", mix.name, options.len()));
    let mut command = accelerated(options, 1800, "fsx");
    command.args(["-q", "-N", &operations.to_string(), "-S", &seed.to_string()]);
    command.args(["-P", &rig.path(""), "-f"]).arg(&configuration).arg(&file);
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "amphi run {options:?} fsx -N {operations} -S {seed} with the mix {:?}: {}\n{}",
        mix.name,
        output.status,
        said(&output)
    );
}

/// With `--long` a million operations of ten seeds.
#[test]
fn fsx() {
    if !can_run(&["fsx"]) {
        return;
    }
    let (seeds, operations) = if is_long() { (10, 100_000) } else { (2, 3000) };
    let rig = mounted(BYTEFS, "256M");
    for options in MODES {
        for seed in 1..=seeds {
            for mix in [&QUEUE, &BOTH] {
                fsx_once(&rig, options, mix, operations, seed);
            }
        }
        println!("fsx by amphi run {options:?}: {seeds} seeds of {operations} operations, twice: clean");
    }
    leave(&rig, "fsx by amphi run");
}

/// Calls go into a range, which a key guards where the processor has keys.
#[test]
fn in_a_range() {
    if !can_run(&["pjdfstest", "fsx"]) {
        return;
    }
    library();
    let operations = if is_long() { 100_000 } else { 3000 };
    for file_system in [BYTEFS, "augefs"] {
        for protection in protections() {
            let rig = Rig::of(file_system, "1G");
            shared::mount(&rig, protection);
            once_each(&rig, operations);
            println!("fsx on {file_system} in a range, {}: clean", protection.name());
        }
    }
}

/// An accelerated process works on a file by the queue alone, and a plain one reads the same file again and
/// again, so that the kernel keeps pages and sizes of it that the next write makes old.
#[test]
fn fsx_beside_a_plain_reader() {
    if !can_run(&["fsx"]) {
        return;
    }
    let rig = mounted(BYTEFS, "256M");
    let (operations, options) = (if is_long() { 200_000 } else { 3000 }, MODES[1]);
    let file = rig.on_mount(&format!("{}-{}-7", QUEUE.name, options.len()));
    let ended = AtomicBool::new(false);
    let reads = thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut reads = 0_u64;
            while !ended.load(Ordering::Relaxed) {
                reads += u64::from(fs::read(&file).is_ok());
            }
            reads
        });
        let done = catch_unwind(AssertUnwindSafe(|| fsx_once(&rig, options, &QUEUE, operations, 7)));
        ended.store(true, Ordering::Relaxed);
        done.unwrap_or_else(|failure| resume_unwind(failure));
        reader.join().unwrap()
    });
    println!("fsx by amphi run {options:?} beside a reader: {operations} operations, {reads} reads: clean");
    leave(&rig, "fsx beside a reader");
}

/// Stressors of what the queue does, run without `--long`; with it, all, both ways.
const OF_THE_QUEUE: [&str; 4] = ["fallocate", "rename", "symlink", "hdd"];

#[test]
fn stress_ng() {
    if !can_run(&["stress-ng"]) {
        return;
    }
    let rig = mounted(BYTEFS, "1G");
    let stressors = STRESSORS.iter().filter(|name| is_long() || OF_THE_QUEUE.contains(name));
    for (number, stressor) in stressors.enumerate() {
        for options in
            MODES.iter().skip(if is_long() { 0 } else { number % 2 }).take(if is_long() { 2 } else { 1 })
        {
            let mut command = accelerated(options, 180, "stress-ng");
            command.args([&format!("--{stressor}"), "2", "--timeout", "1s", "--verify"]);
            command.args(["--temp-path", &rig.mount_point()]);
            if matches!(*stressor, "iomix" | "hdd" | "fallocate" | "copy-file") {
                // The defaults are larger than the image.
                command.args([&format!("--{stressor}-bytes"), "128M"]);
            }
            let output = command.current_dir(rig.path("")).output().unwrap();
            let said = said(&output);
            assert!(
                output.status.success(),
                "amphi run {options:?} stress-ng --{stressor}: {}\n{said}",
                output.status
            );
            let skips = said.contains("skipping stress");
            assert!(!skips || NOT_OFFERED.contains(stressor), "stress-ng --{stressor} did nothing:\n{said}");
            assert_empty(Path::new(&rig.mount_point()), stressor);
            println!("stress-ng by amphi run {options:?}: {stressor}: clean");
        }
    }
    leave(&rig, "stress-ng by amphi run");
}

#[test]
fn dbench() {
    if !can_run(&["dbench"]) {
        return;
    }
    let rig = mounted(BYTEFS, "1G");
    for options in MODES {
        let mut command = accelerated(options, 180, "dbench");
        command.args(["-t", if is_long() { "60" } else { "2" }, "-D", &rig.mount_point(), "2"]);
        let output = command.output().unwrap();
        let report = said(&output);
        super::dbench_is_clean(&output, &report);
        println!("dbench by amphi run {options:?}: {}", super::throughput(&report));
    }
    leave(&rig, "dbench by amphi run");
}

/// A program that uses no path of a mount asks the kernel for nothing because of the library: it pays for
/// having it loaded. How much, beside a mount, for one program and for a script of a thousand.
#[test]
fn short_programs_pay_for_being_loaded_alone() {
    if !can_run(&[]) {
        return;
    }
    let rig = mounted(BYTEFS, "64M");
    let library = Path::new(env!("CARGO_BIN_EXE_amphi")).with_file_name("libamphi_preload.so");
    let preload = format!("LD_PRELOAD={}", library.display());
    match Command::new("strace").args(["-f", "-E", &preload, "true"]).output() {
        Ok(traced) => {
            let calls = said(&traced);
            assert!(calls.contains("libamphi_preload.so") && calls.contains("exit_group(0)"), "{calls}");
            for call in ["socket(", "connect(", "/proc/self"] {
                assert!(!calls.contains(call), "true does {call}:\n{calls}");
            }
        }
        Err(error) => println!("SKIPPED: calls are not looked at without strace ({error})"),
    }
    let script = rig.path("thousand.sh");
    fs::write(&script, "i=0\nwhile [ $i -lt 1000 ]; do /bin/true; i=$((i+1)); done\n").unwrap();
    for (what, words, rounds) in
        [("true", vec!["/bin/true"], 200_u32), ("a script of 1000", vec!["sh", &script], 3)]
    {
        let timed = |with: bool| {
            let mut command = Command::new(words[0]);
            command.args(&words[1..]);
            if with {
                command.env("LD_PRELOAD", &library);
            }
            let start = std::time::Instant::now();
            assert!(command.status().unwrap().success(), "{what}");
            start.elapsed().as_secs_f64() * 1e3
        };
        let mut taken: [Vec<f64>; 2] = Default::default();
        for _ in 0..if is_long() { rounds } else { rounds.div_ceil(3) } {
            taken[0].push(timed(false));
            taken[1].push(timed(true));
        }
        taken.iter_mut().for_each(|times| times.sort_by(f64::total_cmp));
        let [without, with] = taken.map(|times| times[times.len() / 2]);
        println!("{what}: {without:.2} ms, with the library {with:.2} ms: {:.2} times", with / without);
    }
    leave(&rig, "short programs");
}
