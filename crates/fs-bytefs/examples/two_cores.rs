//! How independent files scale over two real processors: create, append and fsync, overwrite and fsync, by
//! one task and by two in directories of their own.
//!
//! `cargo run --release -p amphi-fs-bytefs --example two_cores [ROUNDS [INODES]]`. A round measures one task,
//! two tasks in one file system, and two that share nothing, each in a file system on a device of its own,
//! which shows what the machine has to give. Rounds are short and many, and of all that is printed the median
//! counts, so that neighbours on the machine and a hypervisor that takes a processor away for a while decide
//! nothing. A rate is that of the time in which all tasks of the round ran. What the devices do for
//! themselves is kept out of it: their memory has been touched before, their logs are cleaned between rounds,
//! files are made before and removed after; the last line says what of it took place all the same. The file
//! systems have as many inodes as one of 4 GiB, from which size on two processors' inodes lie in different
//! partitions of the log's index; `INODES` is another number.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use amphi_device::WriteLog;
use amphi_fs_bytefs::{ByteFs, FormatOptions, MountOptions};
use amphi_rt::task;
use amphi_ssd::{Profile, Ssd};
use amphi_vfs::{Cred, FileSystem, FileType, Ino, Name, Result, WriteMode};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// As the command has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ROUNDS: usize = 41;
/// Rounds before those that count.
const WARM_UP: usize = 3;
const CALLS: usize = 2000;
const PAGE: usize = 4096;
/// Pages of the file that is overwritten.
const PAGES: usize = 512;
const DEVICE_BYTES: usize = 1 << 30;
const HAND_OVERS: u64 = 20_000;

/// As many as a file system of 4 GiB has by default.
const INODES: u32 = 1 << 18;

/// A file system and a directory of it, for one task.
struct Place {
    fs: Arc<ByteFs<Ssd>>,
    dir: Ino,
}

#[derive(Clone, Copy)]
enum Work {
    Create,
    Append,
    Overwrite(usize),
}

const WORKS: [(&str, Work); 4] = [
    ("create", Work::Create),
    ("append 4 KB + fsync", Work::Append),
    ("overwrite 64 B + fsync", Work::Overwrite(64)),
    ("overwrite 4 KB + fsync", Work::Overwrite(PAGE)),
];

impl Place {
    fn create(&self, name: &str) -> Result<Ino> {
        let name = Name::new(name.as_bytes())?;
        Ok(self.fs.create(self.dir, name, FileType::Regular, 0o644, 0, &Cred::ROOT)?.attr.ino)
    }

    fn unlink(&self, name: &str) -> Result<()> {
        self.fs.unlink(self.dir, Name::new(name.as_bytes())?).map(drop)
    }

    /// Makes a file of so many bytes, and writes all of it twice, which reaches what the device has besides
    /// the room that it shows.
    fn fill(&self, name: &str, bytes: usize) -> Result<()> {
        let ino = self.create(name)?;
        for round in 1..=2 {
            (0..bytes).step_by(1 << 20).try_for_each(|at| self.write(ino, at, &vec![round; 1 << 20]))?;
        }
        self.fs.forget(ino, 1);
        Ok(())
    }

    fn write(&self, ino: Ino, at: usize, data: &[u8]) -> Result<()> {
        self.fs.write(ino, at as u64, data, WriteMode::default(), &Cred::ROOT)?;
        self.fs.fsync(ino, false)
    }

    /// Does the work of a round once `ready` says that all tasks have come. Answers when it began, and when
    /// each call ended.
    fn work(&self, work: Work, tasks: usize, ready: &AtomicUsize) -> Result<Vec<Instant>> {
        let names: Vec<String> = (0..CALLS).map(|number| format!("file-{number}")).collect();
        let data = self.create("data")?;
        if matches!(work, Work::Overwrite(_)) {
            self.write(data, 0, &vec![1; PAGES * PAGE])?;
        }
        let mut moments = Vec::with_capacity(CALLS + 1);
        ready.fetch_add(1, Ordering::AcqRel);
        while ready.load(Ordering::Acquire) < tasks {
            std::hint::spin_loop();
        }
        moments.push(Instant::now());
        for (number, name) in names.iter().enumerate() {
            match work {
                Work::Create => self.fs.forget(self.create(name)?, 1),
                Work::Append => self.write(data, number * PAGE, &[1; PAGE])?,
                // Not what was there before: a page that is not modified is not written.
                Work::Overwrite(bytes) => {
                    self.write(data, number % PAGES * PAGE, &[(number / PAGES) as u8 + 2; PAGE][..bytes])?
                }
            }
            moments.push(Instant::now());
        }
        if matches!(work, Work::Create) {
            names.iter().try_for_each(|name| self.unlink(name))?;
        }
        self.fs.forget(data, 1);
        self.unlink("data")?;
        Ok(moments)
    }
}

/// Calls per second of a task for each place while all of them ran, and the p50 of a call, ns.
fn measure(places: &[&Arc<Place>], work: Work, processors: &[CpuSet; 2]) -> (f64, f64) {
    let ready = Arc::new(AtomicUsize::new(0));
    let running: Vec<_> = places
        .iter()
        .zip(processors)
        .map(|(place, processor)| {
            let (place, ready, tasks) = (Arc::clone(place), Arc::clone(&ready), places.len());
            let processor = *processor;
            task::spawn("work", move || {
                sched_setaffinity(None, &processor).expect("it is one that this process may use");
                place.work(work, tasks, &ready).expect("the device has room and does not fail")
            })
        })
        .collect();
    let runs: Vec<Vec<Instant>> = running.into_iter().map(task::JoinHandle::join).collect();
    let began = runs.iter().map(|run| run[0]).max().expect("there are tasks");
    let ended = runs.iter().map(|run| run[CALLS]).min().expect("there are tasks");
    let within = runs.iter().flatten().filter(|moment| **moment > began && **moment <= ended).count();
    let latencies_ns =
        runs.iter().flat_map(|run| run.windows(2)).map(|pair| (pair[1] - pair[0]).as_nanos() as f64);
    (within as f64 / (ended - began).as_secs_f64(), median(latencies_ns))
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Two processors that this process may use, each as a set of its own.
fn processors() -> std::result::Result<[CpuSet; 2], Box<dyn std::error::Error>> {
    let allowed = sched_getaffinity(None)?;
    let mut each = (0..CpuSet::MAX_CPU).filter(|&number| allowed.is_set(number)).map(|number| {
        let mut one = CpuSet::new();
        one.set(number);
        one
    });
    match (each.next(), each.next()) {
        (Some(first), Some(second)) => Ok([first, second]),
        _ => Err("two tasks on two processors are compared with one: this process may use only one".into()),
    }
}

/// How long a line of memory takes from one processor's cache to the other's, ns: in a virtual machine that
/// depends on where the processors are just now.
fn hand_over_ns() -> f64 {
    let line = Arc::new(AtomicU64::new(0));
    let theirs = Arc::clone(&line);
    let pass = |line: &AtomicU64, first: u64| {
        for turn in (first..2 * HAND_OVERS).step_by(2) {
            while line.load(Ordering::Acquire) != turn {
                std::hint::spin_loop();
            }
            line.store(turn + 1, Ordering::Release);
        }
    };
    let start = Instant::now();
    let other = task::spawn("other", move || pass(&theirs, 1));
    pass(&line, 0);
    other.join();
    start.elapsed().as_nanos() as f64 / (2 * HAND_OVERS) as f64
}

/// A file system on a device whose memory has been touched, and as many directories as named.
fn mounted(
    names: &[&str],
    inodes: u32,
    processors: &[CpuSet; 2],
) -> std::result::Result<Vec<Arc<Place>>, Box<dyn std::error::Error>> {
    let device = Arc::new(Ssd::in_memory(&Profile::named("free")?, DEVICE_BYTES as u64));
    ByteFs::format(&*device, &FormatOptions { inodes: Some(inodes), ..FormatOptions::default() })?;
    let options = MountOptions { write_back_interval_ns: 0, ..MountOptions::default() };
    let fs = Arc::new(ByteFs::mount(device, options)?);
    let root = || Place { fs: Arc::clone(&fs), dir: Ino::ROOT };
    // Each processor its half: whoever filled all of the device would go on allocating where the other does.
    for (processor, name) in processors.iter().copied().zip(["one", "two"]) {
        let place = root();
        let filling = task::spawn("fill", move || {
            sched_setaffinity(None, &processor).expect("it is one that this process may use");
            place.fill(name, DEVICE_BYTES / 20 * 9)
        });
        filling.join()?;
    }
    ["one", "two"].iter().try_for_each(|name| root().unlink(name))?;
    fs.discard_free(0..u64::MAX, 1)?;
    let place = |name: &&str| {
        let dir = fs.mkdir(Ino::ROOT, Name::new(name.as_bytes())?, 0o755, &Cred::ROOT)?.attr.ino;
        Ok(Arc::new(Place { fs: Arc::clone(&fs), dir }))
    };
    names.iter().map(place).collect()
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let rounds = std::env::args().nth(1).map_or(Ok(ROUNDS), |rounds| rounds.parse())?;
    let inodes = std::env::args().nth(2).map_or(Ok(INODES), |inodes| inodes.parse())?;
    let processors = processors()?;
    let (shared, apart) =
        (mounted(&["one", "two"], inodes, &processors)?, mounted(&["one"], inodes, &processors)?);
    let ways: [Vec<&Arc<Place>>; 3] =
        [vec![&shared[0]], vec![&shared[0], &shared[1]], vec![&shared[0], &apart[0]]];
    let devices = [shared[0].fs.device(), apart[0].fs.device()];
    let counts = || {
        devices.iter().fold((0, 0), |sum, device| {
            let stats = device.stats();
            (sum.0 + stats.log_cleanings, sum.1 + stats.blocks_erased)
        })
    };
    println!(
        "median of {rounds} rounds; two in one: tasks in one file system; two apart: each in its own, on a device of its own"
    );
    let mut own = (0, 0);
    for (what, work) in WORKS {
        let mut of_rounds = Vec::new();
        for round in 0..WARM_UP + rounds {
            let before = counts();
            let line_ns = hand_over_ns();
            let measured = ways.each_ref().map(|places| measure(places, work, &processors));
            let after = counts();
            own = (own.0 + after.0 - before.0, own.1 + after.1 - before.1);
            devices.iter().try_for_each(|device| device.clean_log())?;
            if round >= WARM_UP {
                of_rounds.push((line_ns, measured));
            }
        }
        println!(
            "{what}: a line between processors in {:.0} ns",
            median(of_rounds.iter().map(|round| round.0))
        );
        for (way, name) in ["one task", "two in one", "two apart"].into_iter().enumerate() {
            let of = |value: fn(&[(f64, f64); 3], usize) -> f64| {
                median(of_rounds.iter().map(|(_, measured)| value(measured, way)))
            };
            println!(
                "    {name:10} {:10.0} a second {:5.2}x   p50 {:6.0} ns {:5.2}x   of two apart {:.2}",
                of(|measured, way| measured[way].0),
                of(|measured, way| measured[way].0 / measured[0].0),
                of(|measured, way| measured[way].1),
                ways[way].len() as f64 * of(|measured, way| measured[0].1 / measured[way].1),
                of(|measured, way| measured[way].0 / measured[2].0),
            );
        }
    }
    println!("meanwhile the devices cleaned their logs {} times and erased {} blocks", own.0, own.1);
    Ok(())
}
