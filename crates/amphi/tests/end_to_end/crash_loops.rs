//! Crash loops on a real mount: workers change files and record what was acknowledged; at a moment that the
//! seed decides the daemon is killed, or the device loses its power; then everything acknowledged must be
//! there, and fsck must be content.
//!
//! `AMPHI_LOOP_SEED` and `AMPHI_LOOP_ITERATIONS` select iterations; each failure prints the command that
//! replays it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::rig::{Daemon, Rig, amphi, can_mount, complaint, is_long};
use crate::worker::{Dice, Worker};

/// How an iteration ends.
#[derive(Clone, Copy)]
pub enum Crash {
    /// SIGKILL: the host is gone, the device keeps its power.
    Kill,
    /// The device loses its power.
    PowerCut,
}

impl Crash {
    fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill-loop",
            Self::PowerCut => "power-loop",
        }
    }

    /// What it is called in a sentence.
    pub fn what(self) -> &'static str {
        match self {
            Self::Kill => "killed daemon",
            Self::PowerCut => "power cut",
        }
    }
}

#[test]
fn kill_loop() {
    run_loop(Crash::Kill);
}

#[test]
fn power_loop() {
    run_loop(Crash::PowerCut);
}

/// A test for each of the other file systems, with fewer iterations.
mod others {
    use super::{Crash, Subject, run};

    fn loses_nothing_acknowledged(file_system: &'static str, syncs: bool) {
        for crash in [Crash::Kill, Crash::PowerCut] {
            run(Subject { file_system, syncs }, crash, 4);
        }
    }

    #[test]
    fn augefs() {
        loses_nothing_acknowledged("augefs", false);
    }

    #[test]
    fn devfs() {
        loses_nothing_acknowledged("devfs", false);
    }

    #[test]
    fn ext4like() {
        loses_nothing_acknowledged("ext4like", true);
    }

    #[test]
    fn f2fslike() {
        loses_nothing_acknowledged("f2fslike", true);
    }

    #[test]
    fn novalike() {
        loses_nothing_acknowledged("novalike", false);
    }

    #[test]
    fn pmfslike() {
        loses_nothing_acknowledged("pmfslike", false);
    }

    #[test]
    fn romefs() {
        loses_nothing_acknowledged("romefs", false);
    }
}

/// What is mounted, and what it promises.
#[derive(Clone, Copy)]
struct Subject {
    file_system: &'static str,
    /// Whether operations have to be synced before they count.
    syncs: bool,
}

fn run_loop(crash: Crash) {
    let long = is_long();
    run(Subject { file_system: "bytefs", syncs: false }, crash, if long { 2000 } else { 200 });
}

fn run(subject: Subject, crash: Crash, iterations: u64) {
    if !can_mount() {
        return;
    }
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let first = number("AMPHI_LOOP_SEED").unwrap_or(1);
    let iterations = number("AMPHI_LOOP_ITERATIONS").unwrap_or(iterations);
    let name = crash.name();
    let start = Instant::now();
    let mut operations = 0;
    for seed in first..first + iterations {
        let mut rig = Rig::of(subject.file_system, "256M");
        match iterate(&rig, subject, crash, seed) {
            Ok(done) => operations += done,
            Err(reason) => panic!(
                "{name} of {} seed {seed}: {reason}\nthe image is kept in {}\nreplay with: {}",
                subject.file_system,
                rig.keep().display(),
                subject.replay(crash, seed)
            ),
        }
    }
    println!(
        "{name} of {}: {iterations} iterations, {} crashes, {operations} acknowledged operations, none lost, \
         in {:.1} s",
        subject.file_system,
        iterations * CRASHES,
        start.elapsed().as_secs_f64()
    );
}

impl Subject {
    fn replay(self, crash: Crash, seed: u64) -> String {
        let Self { file_system, .. } = self;
        if file_system == "bytefs" {
            return format!("cargo xtask test --only {} --seed {seed} --iterations 1", crash.name());
        }
        format!(
            "AMPHI_LOOP_SEED={seed} AMPHI_LOOP_ITERATIONS=1 \
             cargo test -p amphi --test end_to_end -- --exact crash_loops::others::{file_system}"
        )
    }
}

/// Crashes of one image in each iteration.
const CRASHES: u64 = 2;

/// One iteration; returns the number of acknowledged operations.
fn iterate(rig: &Rig, subject: Subject, crash: Crash, seed: u64) -> Result<u64, String> {
    const WORKERS: u64 = 2;
    let mut dice = Dice::new(seed);
    // Half of the iterations with the device's own times: they open windows that a fast device closes at
    // once.
    let speed: &[&str] = if dice.below(2) == 0 { &["--free"] } else { &[] };
    let mut workers: Vec<Worker> = (0..WORKERS)
        .map(|index| Worker::new(rig.on_mount(&format!("worker{index}")), Dice::new(dice.next())))
        .map(|worker| worker.syncing(subject.syncs).cutting_in_place(subject.file_system == "ext4like"))
        .collect();
    let mut operations = 0;
    for round in 0..CRASHES {
        let daemon = rig.mount_as_child(speed);
        if round == 0 {
            for worker in &workers {
                std::fs::create_dir(worker.root()).map_err(|error| format!("mkdir: {error}"))?;
            }
        }
        let moment = Moment { operations: 1 + dice.below(150), then: Duration::from_micros(dice.below(400)) };
        operations += crash_once(rig, crash, daemon, &mut workers, &moment, dice.next())?;

        let mut daemon = rig.mount_as_child(speed);
        for worker in &mut workers {
            worker.verify().map_err(|reason| format!("after crash {round}: {reason}"))?;
        }
        rig.umount();
        daemon.wait();
        rig.fsck()?;
    }
    Ok(operations)
}

/// When to crash: after this many acknowledged operations, and then a little later.
struct Moment {
    operations: u64,
    then: Duration,
}

/// Lets the workers run, crashes, and waits until all have noticed.
fn crash_once(
    rig: &Rig,
    crash: Crash,
    mut daemon: Daemon,
    workers: &mut [Worker],
    moment: &Moment,
    seed: u64,
) -> Result<u64, String> {
    let acknowledged = Arc::new(AtomicU64::new(0));
    let outcomes: Vec<Result<(), String>> = std::thread::scope(|scope| {
        let running: Vec<_> = workers
            .iter_mut()
            .map(|worker| {
                let acknowledged = Arc::clone(&acknowledged);
                scope.spawn(move || worker.work_until_crash(&acknowledged))
            })
            .collect();
        let deadline = Instant::now() + Duration::from_secs(120);
        while acknowledged.load(Ordering::Relaxed) < moment.operations
            && Instant::now() < deadline
            && !running.iter().any(|thread| thread.is_finished())
        {
            std::hint::spin_loop();
        }
        std::thread::sleep(moment.then);
        crash_now(rig, crash, &mut daemon, seed);
        running.into_iter().map(|thread| thread.join().expect("a worker does not panic")).collect()
    });
    daemon.wait();
    outcomes.into_iter().collect::<Result<(), String>>()?;
    let operations = acknowledged.load(Ordering::Relaxed);
    if operations < moment.operations {
        return Err(format!("only {operations} operations in two minutes"));
    }
    Ok(operations)
}

/// Crashes the daemon or the device of `rig` at once; `seed` decides what a power cut keeps of what is not
/// durable.
pub fn crash_now(rig: &Rig, crash: Crash, daemon: &mut Daemon, seed: u64) {
    match crash {
        Crash::Kill => daemon.kill(),
        Crash::PowerCut => {
            let output = amphi(&["power-cut", &rig.mount_point(), "--seed", &seed.to_string()]);
            assert!(output.status.success(), "power-cut: {}", complaint(&output));
        }
    }
}

/// The checks are worth something only if they can fail.
#[test]
fn the_oracle_notices_what_is_lost() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let root: PathBuf = directory.path().join("worker");
    std::fs::create_dir(&root).expect("a directory");
    let mut worker = Worker::new(root.clone(), Dice::new(1));
    worker.work(300);
    worker.verify().expect("nothing is lost yet");

    worker.work(50);
    let victim = worker.synced_file().expect("after so many operations some file was synced");
    let path = root.join(&victim);
    let bytes = std::fs::read(&path).expect("readable");
    let mut wrong = bytes.clone();
    wrong[0] = !wrong[0];
    std::fs::write(&path, &wrong).expect("writable");
    assert!(worker.verify().is_err(), "a changed byte of a synced file");
    std::fs::write(&path, &bytes[..bytes.len() - 1]).expect("writable");
    assert!(worker.verify().is_err(), "a lost byte of a synced file");
    std::fs::remove_file(&path).expect("removable");
    assert!(worker.verify().is_err(), "a lost file");
}
