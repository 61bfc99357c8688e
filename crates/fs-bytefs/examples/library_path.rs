//! What one operation costs in software: ByteFS as a library on the emulated SSD without delays, one task,
//! p50 and p99.
//!
//! `cargo run --release -p amphi-fs-bytefs --example library_path`
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock around each operation")]

use std::sync::Arc;
use std::time::Instant;

use amphi_fs_bytefs::diff::{self, LineMask};
use amphi_fs_bytefs::{ByteFs, FormatOptions, MountOptions};
use amphi_ssd::{Profile, Ssd};
use amphi_vfs::{Cred, FileSystem, FileType, Ino, Name, RenameMode, Result, WriteMode};

/// As the command has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const FILES: usize = 100_000;
const PAGES: usize = 20_000;
const COMPARISONS: usize = 1_000_000;

fn measure(what: &str, count: usize, mut operation: impl FnMut(usize) -> Result<()>) -> Result<()> {
    let mut latencies_ns = Vec::with_capacity(count);
    for i in 0..count {
        let start = Instant::now();
        operation(i)?;
        latencies_ns.push(start.elapsed().as_nanos());
    }
    latencies_ns.sort_unstable();
    let percentile = |p: usize| latencies_ns[(count - 1) * p / 100];
    println!("{what:28} p50 {:8} ns   p99 {:8} ns", percentile(50), percentile(99));
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let device = Arc::new(Ssd::in_memory(&Profile::named("free")?, 4 << 30));
    ByteFs::format(&*device, &FormatOptions { inodes: Some(400_000), ..FormatOptions::default() })?;
    let fs = ByteFs::mount(device, MountOptions { write_back_interval_ns: 0, ..MountOptions::default() })?;
    names(&fs)?;
    data(&fs)?;
    comparison();
    Ok(())
}

/// What comparing a page with its duplicate costs, with the processor's vectors and without.
fn comparison() {
    let before = [3; 4096];
    let mut now = before;
    let mut measure = |what: &str, compare: fn(&[u8; 4096], &[u8; 4096]) -> LineMask| {
        let start = Instant::now();
        for i in 0..COMPARISONS {
            now[i % 4096] ^= 1;
            std::hint::black_box(compare(std::hint::black_box(&before), std::hint::black_box(&now)));
        }
        println!("compare a page, {what:12} mean {:7} ns", start.elapsed().as_nanos() / COMPARISONS as u128);
    };
    for _ in 0..2 {
        measure("portable", diff::compare);
        measure("dispatched", diff::changed_lines);
    }
}

fn names(fs: &dyn FileSystem) -> Result<()> {
    let cred = &Cred::ROOT;
    let list = |prefix: &str| (0..FILES).map(|i| format!("{prefix}-{i:06}")).collect::<Vec<_>>();
    let (old, new, dirs) = (list("file"), list("renamed"), list("directory"));
    let name = |list: &'static [String], i: usize| Name::new(list[i].as_bytes());
    let (old, new, dirs): (&'static [_], &'static [_], &'static [_]) = (old.leak(), new.leak(), dirs.leak());
    let mut inodes = Vec::with_capacity(FILES);
    measure("create", FILES, |i| {
        inodes.push(fs.create(Ino::ROOT, name(old, i)?, FileType::Regular, 0o644, 0, cred)?.attr.ino);
        Ok(())
    })?;
    measure("lookup", FILES, |i| fs.lookup(Ino::ROOT, name(old, i)?).map(drop))?;
    measure("getattr", FILES, |i| fs.getattr(inodes[i]).map(drop))?;
    inodes.iter().for_each(|ino| fs.forget(*ino, 2));
    measure("rename", FILES, |i| {
        fs.rename(Ino::ROOT, name(old, i)?, Ino::ROOT, name(new, i)?, RenameMode::Replace).map(drop)
    })?;
    measure("unlink", FILES, |i| fs.unlink(Ino::ROOT, name(new, i)?).map(drop))?;
    measure("mkdir", FILES / 2, |i| fs.mkdir(Ino::ROOT, name(dirs, i)?, 0o755, cred).map(drop))
}

fn data(fs: &dyn FileSystem) -> Result<()> {
    let cred = &Cred::ROOT;
    let how = WriteMode::default();
    let file = fs.create(Ino::ROOT, Name::new(b"data")?, FileType::Regular, 0o644, 0, cred)?.attr.ino;
    let mut buffer = vec![1; 1 << 20];
    measure("append 4 KB + fsync", PAGES, |i| {
        fs.write(file, i as u64 * 4096, &buffer[..4096], how, cred)?;
        fs.fsync(file, false)
    })?;
    // A stride coprime to the number of pages visits all of them in no simple order.
    let place = |i: usize| (i * 7919 % PAGES) as u64 * 4096;
    for (i, bytes) in [64, 1024, 4096].into_iter().enumerate() {
        buffer.fill(i as u8 + 2);
        measure(&format!("overwrite {bytes} B + fsync"), PAGES, |i| {
            fs.write(file, place(i), &buffer[..bytes], how, cred)?;
            fs.fsync(file, false)
        })?;
    }
    let mut into = vec![0; 4096];
    for bytes in [64, 4096] {
        measure(&format!("cached read {bytes} B"), PAGES, |i| {
            fs.read(file, place(i), &mut into[..bytes], false).map(drop)
        })?;
    }
    measure("write 1 MB + fsync", 200, |i| {
        buffer.fill(i as u8);
        fs.write(file, (i % 16) as u64 * (1 << 20), &buffer, how, cred)?;
        fs.fsync(file, false)
    })
}
