//! How independent files scale over two real processors: create, append and fsync, overwrite and fsync, by one task and by two in directories of their own.
//!
//! `cargo run --release -p amphi-fs-bytefs --example two_cores`. The rounds of one and of two tasks take turns; the best of each counts, since a
//! neighbour on the machine can only slow them down. Beside the rates stands the same by p50 latencies, which memory touched for the first time and tasks that lose their
//! processor hardly change: on a busy machine only those mean something. Two tasks that share nothing, each in a file system of its own, show what the machine has to give.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use amphi_fs_bytefs::{ByteFs, FormatOptions, MountOptions};
use amphi_rt::task;
use amphi_ssd::{Profile, Ssd};
use amphi_vfs::{Cred, FileSystem, FileType, Ino, Name, Result, WriteMode};

/// As the command has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ROUNDS: usize = 7;
const FILES: usize = 4000;
const WRITES: usize = 20_000;
const PAGE: usize = 4096;
const HAND_OVERS: u64 = 20_000;

/// One kind of work in one directory; returns the latency of each operation in ns.
type Work = fn(&ByteFs<Ssd>, Ino, usize) -> Result<Vec<u64>>;

const WORKS: [(&str, Work); 4] = [
    ("create", create),
    ("append 4 KB + fsync", |fs, dir, round| writes(fs, dir, round, PAGE, WRITES)),
    ("overwrite 64 B + fsync", |fs, dir, round| writes(fs, dir, round, 64, 512)),
    ("overwrite 4 KB + fsync", |fs, dir, round| writes(fs, dir, round, PAGE, 512)),
];

fn timed(operation: impl FnOnce() -> Result<()>) -> Result<u64> {
    let start = Instant::now();
    operation()?;
    Ok(start.elapsed().as_nanos() as u64)
}

fn create(fs: &ByteFs<Ssd>, dir: Ino, round: usize) -> Result<Vec<u64>> {
    let one = |number: usize| {
        let name = format!("r{round}-{number}");
        let entry = fs.create(dir, Name::new(name.as_bytes())?, FileType::Regular, 0o644, 0, &Cred::ROOT)?;
        fs.forget(entry.attr.ino, 1);
        Ok(())
    };
    (0..FILES).map(|number| timed(|| one(number))).collect()
}

/// Writes of `bytes` over a file of `pages` pages, which the first pass appends.
fn writes(fs: &ByteFs<Ssd>, dir: Ino, round: usize, bytes: usize, pages: usize) -> Result<Vec<u64>> {
    let name = format!("f{round}-{bytes}-{pages}");
    let ino = fs.create(dir, Name::new(name.as_bytes())?, FileType::Regular, 0o644, 0, &Cred::ROOT)?.attr.ino;
    let one = |number: usize| {
        let at = (number % pages * PAGE) as u64;
        // Not what was there before: a page that is not modified is not written.
        let byte = (number + number / pages) as u8;
        fs.write(ino, at, &[byte; PAGE][..bytes], WriteMode::default(), &Cred::ROOT)?;
        fs.fsync(ino, false)
    };
    let latencies_ns = (0..WRITES).map(|number| timed(|| one(number))).collect();
    fs.forget(ino, 1);
    fs.unlink(dir, Name::new(name.as_bytes())?)?;
    latencies_ns
}

/// How long a line of memory takes from one processor's cache to the other's, ns: in a virtual machine that depends on where the processors are just now.
fn hand_over_ns() -> u64 {
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
    start.elapsed().as_nanos() as u64 / (2 * HAND_OVERS)
}

/// A file system and a directory of it, for one task.
type Place = (Arc<ByteFs<Ssd>>, Ino);

/// Operations per second of a task for each place, and their p50 in ns.
fn rate(places: &[&Place], work: Work, round: usize) -> (f64, f64) {
    let start = Instant::now();
    let running: Vec<_> = places
        .iter()
        .map(|(fs, dir)| {
            let (fs, dir) = (Arc::clone(fs), *dir);
            task::spawn("work", move || work(&fs, dir, round).expect("the device has room and does not fail"))
        })
        .collect();
    let mut latencies_ns: Vec<u64> = running.into_iter().flat_map(task::JoinHandle::join).collect();
    let rate = latencies_ns.len() as f64 / start.elapsed().as_secs_f64();
    latencies_ns.sort_unstable();
    (rate, latencies_ns[latencies_ns.len() / 2] as f64)
}

/// A file system on a device of its own, and as many directories as named.
fn mounted(names: &[&str]) -> std::result::Result<Vec<Place>, Box<dyn std::error::Error>> {
    let device = Arc::new(Ssd::in_memory(&Profile::named("free")?, 2 << 30));
    ByteFs::format(&*device, &FormatOptions { inodes: Some(400_000), ..FormatOptions::default() })?;
    let options = MountOptions { write_back_interval_ns: 0, ..MountOptions::default() };
    let fs = Arc::new(ByteFs::mount(device, options)?);
    let place = |name: &&str| {
        let made = fs.mkdir(Ino::ROOT, Name::new(name.as_bytes())?, 0o755, &Cred::ROOT)?;
        Ok((Arc::clone(&fs), made.attr.ino))
    };
    names.iter().map(place).collect()
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let (shared, apart) = (mounted(&["one", "two"])?, mounted(&["one"])?);
    let ways: [(&str, Vec<&Place>); 3] = [
        ("one task", vec![&shared[0]]),
        ("two tasks", vec![&shared[0], &shared[1]]),
        ("two apart", vec![&shared[0], &apart[0]]),
    ];
    println!(
        "two tasks: in one file system; two apart: each in its own, on a device of its own; ratios: to one task"
    );
    for (what, work) in WORKS {
        let mut best = [(0.0_f64, f64::MAX); 3];
        let mut hand_overs_ns = Vec::new();
        for round in 0..ROUNDS {
            hand_overs_ns.push(hand_over_ns());
            for (number, (_, places)) in ways.iter().enumerate() {
                let now = rate(places, work, ways.len() * round + number);
                best[number] = (best[number].0.max(now.0), best[number].1.min(now.1));
            }
        }
        hand_overs_ns.sort_unstable();
        println!("{what}: a line between processors in {} ns", hand_overs_ns[ROUNDS / 2]);
        for ((name, places), (rate, p50_ns)) in ways.iter().zip(best) {
            println!(
                "    {name:10} {rate:10.0} a second {:6.2}x   p50 {p50_ns:6.0} ns {:6.2}x",
                rate / best[0].0,
                places.len() as f64 * best[0].1 / p50_ns
            );
        }
    }
    Ok(())
}
