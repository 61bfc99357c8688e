//! Real programs over crashes: databases, git and a build work on a mount; in the middle of it the daemon is
//! killed, or the device loses its power; then everything they acknowledged must be there, their own checks
//! and `amphi fsck` must find nothing, and they go on working.
//!
//! What was acknowledged is recorded outside the mount. Run by `cargo xtask test --only programs`, which
//! installs the programs. `AMPHI_LOOP_SEED` and `AMPHI_LOOP_ITERATIONS` select iterations, as in
//! `crash_loops`.

mod build;
mod git;
mod others;
mod pinned_logs;
mod postgres;
mod redis;
mod rocksdb;
mod sqlite;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::crash_loops::{Crash, crash_now};
use crate::external_suites::said;
use crate::rig::{Rig, amphi_ok, can_mount, is_long};
use crate::worker::Dice;

/// Longer than anything here takes on a busy machine: what is not there by then hangs.
const PATIENCE: Duration = Duration::from_secs(240);

/// More than any command here has to say on one of its outputs, in bytes.
const SAID_MAX: u64 = 64 << 20;

/// What a step of a program comes to; an error is one message for a person.
type Outcome<T> = Result<T, String>;

/// A program that works on a mount until the mount fails under it.
trait Program: Send {
    /// What it is called in messages.
    const NAME: &'static str;
    /// What has to be installed.
    const NEEDS: &'static [&'static str];
    /// What an image has to hold.
    const IMAGE: &'static str;
    /// Operations to be acknowledged before a crash, at least; at most twice as many.
    const OPERATIONS: u64;

    /// Makes what the work needs, on a mount that does not fail meanwhile.
    fn prepare(&mut self, rig: &Rig) -> Outcome<()>;

    /// Works until the mount fails, counting acknowledged operations. No process of the program is left when
    /// this returns.
    fn work_until_crash(&mut self, rig: &Rig, acknowledged: &AtomicU64) -> Outcome<()>;

    /// Compares what is there after a crash with what was acknowledged, and makes the program check itself.
    /// Says what was compared.
    fn verify(&mut self, rig: &Rig) -> Outcome<String>;
}

/// Where programs work.
#[derive(Clone, Copy)]
struct Place {
    /// What `amphi mkfs` is told beside the image and its size.
    mkfs: &'static [&'static str],
    /// How it is mounted.
    options: &'static [&'static str],
    /// Iterations unless told otherwise, and with `--long`.
    iterations: [u64; 2],
    /// Crashes of each image, killed daemons and power cuts in turns.
    crashes: usize,
    /// Before a crash there are so many times fewer operations than a program's own number.
    fewer: u64,
}

/// Runs `make`'s program on ByteFS through a killed daemon and a power cut, in each iteration.
fn survive<P: Program>(make: impl Fn(Dice) -> P) {
    survive_on(Place { mkfs: &[], options: &[], iterations: [4, 40], crashes: 2, fewer: 1 }, make);
}

/// Runs `make`'s program through killed daemons and power cuts, in each iteration.
fn survive_on<P: Program>(place: Place, make: impl Fn(Dice) -> P) {
    if !can_mount() {
        return;
    }
    if let Some(missing) = P::NEEDS.iter().find(|program| installed(program).is_none()) {
        println!("SKIPPED: {missing} is not installed; `cargo xtask test --only programs` installs it");
        return;
    }
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let long = is_long();
    let first = number("AMPHI_LOOP_SEED").unwrap_or(1);
    let iterations = number("AMPHI_LOOP_ITERATIONS").unwrap_or(place.iterations[usize::from(long)]);
    if iterations == 0 {
        println!("SKIPPED: {}: only with --long or --iterations", P::NAME);
        return;
    }
    for seed in first..first + iterations {
        let mut rig = Rig::empty();
        amphi_ok(&[&["mkfs", &rig.image(), "--size", P::IMAGE], place.mkfs].concat());
        let mut dice = Dice::new(seed);
        let mut program = make(Dice::new(dice.next()));
        if let Err(reason) = iterate(&rig, &place, &mut program, &mut dice) {
            let kept = rig.keep();
            panic!(
                "{} seed {seed}: {reason}\nthe image is kept in {}\nreplay with: cargo xtask test --only programs --seed {seed} --iterations 1",
                P::NAME,
                kept.display(),
            );
        }
    }
}

fn iterate<P: Program>(rig: &Rig, place: &Place, program: &mut P, dice: &mut Dice) -> Outcome<()> {
    // A server that refuses to be root has to get there as a user of its own.
    open_to_all(Path::new(&rig.path("")))?;
    let for_all: &[&str] = if rustix::process::geteuid().is_root() { &["-o", "allow_other"] } else { &[] };
    // Half of each kind of crash with the device's own times: they open windows that a fast device closes at
    // once.
    let slow = dice.below(2) as usize;
    for round in 0..place.crashes {
        let start = Instant::now();
        let crash = [Crash::Kill, Crash::PowerCut][round % 2];
        let speed: &[&str] = if (round + round / 2) % 2 == slow { &[] } else { &["--free"] };
        let options = [for_all, speed, place.options].concat();
        let mut daemon = rig.mount_as_child(&options);
        if round == 0 {
            program.prepare(rig).map_err(|reason| format!("at first: {reason}"))?;
        }
        let least = P::OPERATIONS / place.fewer;
        let wanted = least + dice.below(least);
        let seed = dice.next();
        let acknowledged = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let working = scope.spawn(|| program.work_until_crash(rig, &acknowledged));
            let deadline = Instant::now() + PATIENCE;
            while acknowledged.load(Ordering::Relaxed) < wanted
                && Instant::now() < deadline
                && !working.is_finished()
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            crash_now(rig, crash, &mut daemon, seed);
            working.join().expect("a worker does not panic")
        })
        .map_err(|reason| format!("before the {}: {reason}", crash.what()))?;
        daemon.wait();
        let acknowledged = acknowledged.into_inner();
        if acknowledged < wanted {
            return Err(format!("only {acknowledged} of {wanted} operations in {PATIENCE:?}"));
        }
        let worked = start.elapsed();

        let mut daemon = rig.mount_as_child(&options);
        let checked =
            program.verify(rig).map_err(|reason| format!("after the {}: {reason}", crash.what()))?;
        rig.umount();
        daemon.wait();
        rig.fsck().map_err(|reason| format!("after the {}: {reason}", crash.what()))?;
        println!(
            "{}: {} after {acknowledged} acknowledged operations, {}: nothing lost; {:.1} s, checked in {:.1} s",
            P::NAME,
            crash.what(),
            checked,
            start.elapsed().as_secs_f64(),
            (start.elapsed() - worked).as_secs_f64()
        );
    }
    Ok(())
}

/// Lets every user pass through `directory`.
fn open_to_all(directory: &Path) -> Outcome<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o755))
        .map_err(|error| format!("{}: {error}", directory.display()))
}

/// Where `program` is: on `PATH`, or where Debian keeps PostgreSQL's own programs.
fn installed(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    if let Ok(versions) = std::fs::read_dir("/usr/lib/postgresql") {
        let mut versions: Vec<PathBuf> = versions.flatten().map(|entry| entry.path().join("bin")).collect();
        versions.sort();
        // Before `PATH`, where Debian puts wrappers that look for clusters of its own; the newest first.
        places.splice(0..0, versions.into_iter().rev());
    }
    places.into_iter().map(|place| place.join(program)).find(|file| file.is_file())
}

/// A command for `program`, which is installed, killed if it takes longer than anything here does.
fn command(program: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", &PATIENCE.as_secs().to_string()]);
    command.arg(installed(program).unwrap_or_else(|| program.into()));
    command
}

/// Runs a command, which must succeed; returns what it printed.
fn run(command: &mut Command) -> Outcome<String> {
    let output = output(command).map_err(|error| format!("{command:?}: {error}"))?;
    if output.stdout.len().max(output.stderr.len()) as u64 == SAID_MAX {
        let begin: String = said(&output).chars().take(1000).collect();
        return Err(format!("{command:?} says more than {SAID_MAX} bytes: {begin}"));
    }
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    } else {
        Err(complaint(command, &output))
    }
}

/// What a command prints, at most [`SAID_MAX`] bytes on each output: one that says more finds its pipe
/// closed.
///
/// A program whose mount went away may repeat a complaint without end, and faster than memory lasts.
fn output(command: &mut Command) -> std::io::Result<Output> {
    fn read(pipe: impl Read) -> std::io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        pipe.take(SAID_MAX).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (stdout, stderr) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
    let (stdout, stderr) = std::thread::scope(|scope| {
        let stdout = scope.spawn(|| read(stdout));
        let stderr = read(stderr);
        (stdout.join().expect("a reader does not panic"), stderr)
    });
    Ok(Output { status: child.wait()?, stdout: stdout?, stderr: stderr? })
}

#[test]
fn a_command_that_prints_without_end_is_an_error() {
    for script in ["yes", "yes >&2"] {
        let reason = run(command("sh").args(["-c", script])).unwrap_err();
        assert!(reason.contains("says more than 67108864 bytes: y\ny\n"), "{reason}");
    }
}

/// What to say of a command that failed.
fn complaint(command: &Command, output: &Output) -> String {
    format!("{command:?}: {}\n{}", output.status, said(output).trim())
}

/// Waits until `ready`; the error says for what in vain.
fn wait_for(what: &str, mut ready: impl FnMut() -> bool) -> Outcome<()> {
    let deadline = Instant::now() + PATIENCE;
    while !ready() {
        if Instant::now() > deadline {
            return Err(format!("waited {PATIENCE:?} in vain: {what}"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A server that does not outlive its test.
struct Server(Child);

impl Server {
    /// Starts it.
    fn start(command: &mut Command) -> Outcome<Self> {
        command.spawn().map(Self).map_err(|error| format!("{command:?}: {error}"))
    }

    /// Whether it has ended, by itself or otherwise.
    fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }

    /// Waits for its end by itself, which is a clean one or not.
    fn wait(&mut self) -> Outcome<bool> {
        wait_for("the server ends", || self.has_ended())?;
        self.0.wait().map(|status| status.success()).map_err(|error| error.to_string())
    }

    /// Sends it a signal.
    fn signal(&self, signal: rustix::process::Signal) -> Outcome<()> {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, signal).map_err(|error| format!("kill {pid:?}: {error}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // After a regular end there is nothing to kill, and both calls say so.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The one of `allowed` that was found, for counts that may include what was in flight.
fn expect_count(what: &str, found: u64, allowed: std::ops::RangeInclusive<u64>) -> Outcome<u64> {
    if allowed.contains(&found) {
        Ok(found)
    } else {
        Err(format!(
            "{what}: {found}, but {} to {} were acknowledged or in flight",
            allowed.start(),
            allowed.end()
        ))
    }
}
