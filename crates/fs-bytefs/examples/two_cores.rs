//! How independent files scale over two real processors: create, append and fsync, overwrite and fsync, by one task and by two in directories of their own.
//!
//! `cargo run --release -p amphi-fs-bytefs --example two_cores`. The rounds of one and of two tasks take turns; the best of each counts, since a
//! neighbour on the machine can only slow them down. Beside the rates stands the same by p50 latencies, which memory touched for the first time and tasks that lose their
//! processor hardly change: on a busy machine only those mean something.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::sync::Arc;
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

/// One kind of work in one directory; returns the latency of each operation in ns.
type Work = fn(&ByteFs<Ssd>, Ino, usize) -> Result<Vec<u64>>;

const WORKS: [(&str, Work); 4] = [
    ("create", create),
    ("append 4 KB + fsync", |fs, dir, round| writes(fs, dir, round, PAGE, WRITES)),
    ("overwrite 64 B + fsync", |fs, dir, round| writes(fs, dir, round, 64, WRITES)),
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

/// Operations per second of a task for each directory, and their p50 in ns.
fn rate(fs: &Arc<ByteFs<Ssd>>, dirs: &[Ino], work: Work, round: usize) -> (f64, f64) {
    let start = Instant::now();
    let running: Vec<_> = dirs
        .iter()
        .map(|dir| {
            let (fs, dir) = (Arc::clone(fs), *dir);
            task::spawn("work", move || work(&fs, dir, round).expect("the device has room and does not fail"))
        })
        .collect();
    let mut latencies_ns: Vec<u64> = running.into_iter().flat_map(task::JoinHandle::join).collect();
    let rate = latencies_ns.len() as f64 / start.elapsed().as_secs_f64();
    latencies_ns.sort_unstable();
    (rate, latencies_ns[latencies_ns.len() / 2] as f64)
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let device = Arc::new(Ssd::in_memory(&Profile::named("free")?, 2 << 30));
    ByteFs::format(&*device, &FormatOptions { inodes: Some(400_000), ..FormatOptions::default() })?;
    let options = MountOptions { write_back_interval_ns: 0, ..MountOptions::default() };
    let fs = Arc::new(ByteFs::mount(device, options)?);
    let mut dirs = Vec::new();
    for name in ["one", "two"] {
        dirs.push(fs.mkdir(Ino::ROOT, Name::new(name.as_bytes())?, 0o755, &Cred::ROOT)?.attr.ino);
    }
    println!(
        "{:24} {:>12} {:>12} {:>8} {:>14} {:>14} {:>8}",
        "operations per second", "one task", "two tasks", "ratio", "p50 of one", "p50 of two", "ratio"
    );
    for (what, work) in WORKS {
        let best = |best: (f64, f64), now: (f64, f64)| (best.0.max(now.0), best.1.min(now.1));
        let (mut one, mut two) = ((0.0, f64::MAX), (0.0, f64::MAX));
        for round in 0..ROUNDS {
            one = best(one, rate(&fs, &dirs[..1], work, 2 * round));
            two = best(two, rate(&fs, &dirs, work, 2 * round + 1));
        }
        println!(
            "{what:24} {:12.0} {:12.0} {:7.2}x {:11.0} ns {:11.0} ns {:7.2}x",
            one.0,
            two.0,
            two.0 / one.0,
            one.1,
            two.1,
            2.0 * one.1 / two.1
        );
    }
    Ok(())
}
