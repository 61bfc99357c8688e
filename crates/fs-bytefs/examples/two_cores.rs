//! How independent files scale over two real processors: create, append and fsync, overwrite and fsync, by one task and by two in directories of their own.
//!
//! `cargo run --release -p amphi-fs-bytefs --example two_cores`. The rounds of one and of two tasks take turns; the best of each counts, since a
//! neighbour on the machine can only slow them down.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::sync::Arc;
use std::time::Instant;

use amphi_fs_bytefs::{ByteFs, FormatOptions, MountOptions};
use amphi_rt::task;
use amphi_ssd::{Profile, Ssd};
use amphi_vfs::{Cred, FileSystem, FileType, Ino, Name, Result, WriteMode};

const ROUNDS: usize = 7;
const FILES: usize = 4000;
const WRITES: usize = 20_000;
const PAGE: usize = 4096;

/// One kind of work in one directory; returns the operations done.
type Work = fn(&ByteFs<Ssd>, Ino, usize) -> Result<usize>;

const WORKS: [(&str, Work); 4] = [
    ("create", create),
    ("append 4 KB + fsync", |fs, dir, round| writes(fs, dir, round, PAGE, WRITES)),
    ("overwrite 64 B + fsync", |fs, dir, round| writes(fs, dir, round, 64, WRITES)),
    ("overwrite 4 KB + fsync", |fs, dir, round| writes(fs, dir, round, PAGE, 512)),
];

fn create(fs: &ByteFs<Ssd>, dir: Ino, round: usize) -> Result<usize> {
    for number in 0..FILES {
        let name = format!("r{round}-{number}");
        let entry = fs.create(dir, Name::new(name.as_bytes())?, FileType::Regular, 0o644, 0, &Cred::ROOT)?;
        fs.forget(entry.attr.ino, 1);
    }
    Ok(FILES)
}

/// Writes of `bytes` over a file of `pages` pages, which the first pass appends.
fn writes(fs: &ByteFs<Ssd>, dir: Ino, round: usize, bytes: usize, pages: usize) -> Result<usize> {
    let name = format!("f{round}-{bytes}-{pages}");
    let ino = fs.create(dir, Name::new(name.as_bytes())?, FileType::Regular, 0o644, 0, &Cred::ROOT)?.attr.ino;
    for number in 0..WRITES {
        let at = (number % pages * PAGE) as u64;
        // Not what was there before: a page that is not modified is not written.
        let byte = (number + number / pages) as u8;
        fs.write(ino, at, &[byte; PAGE][..bytes], WriteMode::default(), &Cred::ROOT)?;
        fs.fsync(ino, false)?;
    }
    fs.forget(ino, 1);
    fs.unlink(dir, Name::new(name.as_bytes())?)?;
    Ok(WRITES)
}

/// Operations per second of `tasks` tasks.
fn rate(fs: &Arc<ByteFs<Ssd>>, dirs: &[Ino], work: Work, round: usize) -> f64 {
    let start = Instant::now();
    let running: Vec<_> = dirs
        .iter()
        .map(|dir| {
            let (fs, dir) = (Arc::clone(fs), *dir);
            task::spawn("work", move || work(&fs, dir, round).expect("the device has room and does not fail"))
        })
        .collect();
    let done: usize = running.into_iter().map(task::JoinHandle::join).sum();
    done as f64 / start.elapsed().as_secs_f64()
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
    println!("{:24} {:>12} {:>12} {:>8}", "operations per second", "one task", "two tasks", "ratio");
    for (what, work) in WORKS {
        let (mut one, mut two) = (0.0_f64, 0.0_f64);
        for round in 0..ROUNDS {
            one = one.max(rate(&fs, &dirs[..1], work, 2 * round));
            two = two.max(rate(&fs, &dirs, work, 2 * round + 1));
        }
        println!("{what:24} {one:12.0} {two:12.0} {:7.2}x", two / one);
    }
    Ok(())
}
