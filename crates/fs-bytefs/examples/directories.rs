//! How directories scale: lookup, create and unlink in one with a thousand entries and in one with a million,
//! p50 and p99, and their ratio.
//!
//! `cargo run --release -p amphi-fs-bytefs --example directories`
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock around each operation")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use amphi_fs_bytefs::{ByteFs, FormatOptions, MountOptions};
use amphi_ssd::{Profile, Ssd};
use amphi_vfs::{Cred, FileSystem, FileType, Ino, Name, Result};

/// As the command has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const SMALL: usize = 1000;
const LARGE: usize = 1_000_000;
/// Operations per sample; the two directories take turns, so that the machine's noise meets both.
const BATCH: usize = 100;
const BATCHES: usize = 200;
const OPERATIONS: [&str; 3] = ["lookup", "create", "unlink"];

fn text(number: usize) -> String {
    format!("an-ordinary-name-{number:07}")
}

struct Directory {
    ino: Ino,
    entries: usize,
    /// Latencies in ns, by operation.
    latencies_ns: [Vec<u128>; 3],
}

impl Directory {
    fn new(fs: &dyn FileSystem, name: &str, entries: usize) -> Result<Self> {
        let ino = fs.mkdir(Ino::ROOT, Name::new(name.as_bytes())?, 0o755, &Cred::ROOT)?.attr.ino;
        for number in 0..entries {
            create(fs, ino, &text(number))?;
        }
        Ok(Self { ino, entries, latencies_ns: Default::default() })
    }

    /// Looks `BATCH` entries up, creates as many, and removes those again.
    fn batch(&mut self, fs: &dyn FileSystem, batch: usize) -> Result<()> {
        let place = |i: usize| (batch * BATCH + i) * 7919 % self.entries;
        let known: Vec<String> = (0..BATCH).map(|i| text(place(i))).collect();
        let new: Vec<String> = (0..BATCH).map(|i| text(self.entries + batch * BATCH + i)).collect();
        for name in &known {
            let start = Instant::now();
            let entry = fs.lookup(self.ino, Name::new(name.as_bytes())?)?;
            self.latencies_ns[0].push(start.elapsed().as_nanos());
            fs.forget(black_box(entry).attr.ino, 1);
        }
        for name in &new {
            let start = Instant::now();
            create(fs, self.ino, name)?;
            self.latencies_ns[1].push(start.elapsed().as_nanos());
        }
        for name in &new {
            let start = Instant::now();
            fs.unlink(self.ino, Name::new(name.as_bytes())?)?;
            self.latencies_ns[2].push(start.elapsed().as_nanos());
        }
        Ok(())
    }

    fn percentile(&mut self, operation: usize, percent: usize) -> u128 {
        let latencies_ns = &mut self.latencies_ns[operation];
        latencies_ns.sort_unstable();
        latencies_ns[(latencies_ns.len() - 1) * percent / 100]
    }
}

fn create(fs: &dyn FileSystem, dir: Ino, name: &str) -> Result<()> {
    let entry = fs.create(dir, Name::new(name.as_bytes())?, FileType::Regular, 0o644, 0, &Cred::ROOT)?;
    fs.forget(entry.attr.ino, 1);
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let device = Arc::new(Ssd::in_memory(&Profile::named("free")?, 2 << 30));
    ByteFs::format(&*device, &FormatOptions { inodes: Some(1_200_000), ..FormatOptions::default() })?;
    // All inodes stay in host memory: it is the directories that are compared, not the inode cache with what
    // it misses.
    let options =
        MountOptions { write_back_interval_ns: 0, inode_cache: 1_200_000, ..MountOptions::default() };
    let fs = ByteFs::mount(device, options)?;
    let mut small = Directory::new(&fs, "small", SMALL)?;
    let mut large = Directory::new(&fs, "large", LARGE)?;
    for batch in 0..BATCHES {
        small.batch(&fs, batch)?;
        large.batch(&fs, batch)?;
    }
    println!("{:8} {:>22} {:>22} {:>8}", "", format!("{SMALL} entries"), format!("{LARGE} entries"), "ratio");
    for (operation, what) in OPERATIONS.iter().enumerate() {
        let shown = |directory: &mut Directory| {
            (directory.percentile(operation, 50), directory.percentile(operation, 99))
        };
        let (few, many) = (shown(&mut small), shown(&mut large));
        println!(
            "{what:8} p50 {:6} p99 {:6} ns p50 {:6} p99 {:6} ns {:7.2}x",
            few.0,
            few.1,
            many.0,
            many.1,
            many.0 as f64 / few.0 as f64
        );
    }
    Ok(())
}
