//! One operation again and again, which is what a profiler is pointed at: a file system of the list as a
//! library on the emulated SSD without delays, one task.
//!
//! `cargo run --release -p amphi-volumes --example one_operation -- bytefs overwrite 64 20000` prints
//! percentiles of 20,000 overwrites of 64 B, each with its `fsync`. Others: `append`, `read` and bytes,
//! `read-logs`, which is `read` after each page was overwritten, `file` and the bytes that are written into
//! it when it is made, `create`, `mkdir`, `rename`, `unlink` (their third argument is 0); these are durable
//! on return, where the file system promises that.
//!
//! What one call costs in instructions is the difference of two runs, of `perf stat -e instructions:u` or of
//! `valgrind --tool=callgrind target/release/examples/one_operation bytefs overwrite 64 8000` and the same
//! with 2000, by function with `callgrind_annotate --inclusive=yes`.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock around each operation")]

use std::sync::Arc;
use std::time::Instant;

use amphi_ssd::{Firmware, OpenOptions, Profile, Ssd};
use amphi_vfs::{Cred, FileSystem, FileType, Ino, Name, RenameMode, Result, WriteMode};
use amphi_volume::{FormatOptions, MountOptions, Needs, Volume};
use amphi_volumes::{Act, Kind};

/// As the command has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The file that is overwritten and read, as `amphi bench run software` has it.
const FILE_BYTES: usize = 8 << 20;
/// So many files made by `file` are removed together, which is not timed: what it uses was mostly used
/// before, as in `amphi bench run software`.
const BATCH: usize = 256;
const PAGE: usize = 4096;
/// The SSD, and its memory area where the file system needs one, as in `amphi bench run software`.
const SSD_BYTES: u64 = 4 << 30;
const MEMORY_BYTES: u64 = 1 << 30;
const LARGE: usize = 1 << 20;

/// Makes a file system on a device and measures it.
struct Measure {
    device: Arc<Ssd>,
    operation: String,
    bytes: usize,
    calls: usize,
}

struct Bench<F> {
    fs: F,
    file: Ino,
    buffer: Vec<u8>,
    bytes: usize,
}

impl<F: FileSystem> Bench<F> {
    fn create(&self, name: &str) -> Result<Ino> {
        let name = Name::new(name.as_bytes())?;
        Ok(self.fs.create(Ino::ROOT, name, FileType::Regular, 0o644, 0, &Cred::ROOT)?.attr.ino)
    }

    fn mkdir(&self, name: Name<'_>) -> Result<()> {
        let made = self.fs.mkdir(Ino::ROOT, name, 0o755, &Cred::ROOT)?;
        self.fs.forget(made.attr.ino, 1);
        Ok(())
    }

    fn write(&self, at: usize) -> Result<()> {
        self.fs.write(self.file, at as u64, &self.buffer[..self.bytes], WriteMode::default(), &Cred::ROOT)?;
        self.fs.fsync(self.file, false)
    }

    /// Where call `number` takes place: all pages in no simple order, or one large piece after the other.
    const fn place(&self, number: usize) -> usize {
        if self.bytes >= LARGE {
            number % (FILE_BYTES / LARGE) * LARGE
        } else {
            number * 797 % (FILE_BYTES / PAGE) * PAGE
        }
    }

    fn call(&mut self, operation: &str, number: usize, names: &[String]) -> Result<()> {
        let name = Name::new(names[number].as_bytes())?;
        match operation {
            "overwrite" => self.write(self.place(number)),
            "append" => self.write(FILE_BYTES + number * self.bytes),
            "read" | "read-logs" => {
                let (at, bytes) = (self.place(number) as u64, self.bytes);
                self.fs.read(self.file, at, &mut self.buffer[..bytes], false).map(drop)
            }
            "file" => {
                let ino = self.create(&names[number])?;
                self.fs.write(ino, 0, &self.buffer[..self.bytes], WriteMode::default(), &Cred::ROOT)?;
                self.fs.fsync(ino, false)?;
                self.fs.forget(ino, 1);
                Ok(())
            }
            "create" => self.create(&names[number]).map(|ino| self.fs.forget(ino, 1)),
            "mkdir" => self.mkdir(name),
            "rename" => {
                let new = format!("renamed-{number}");
                self.fs
                    .rename(Ino::ROOT, name, Ino::ROOT, Name::new(new.as_bytes())?, RenameMode::Replace)
                    .map(drop)
            }
            "unlink" => self.fs.unlink(Ino::ROOT, name).map(drop),
            _ => panic!("no such operation: {operation}"),
        }
    }

    fn remove(&self, names: &[String]) -> Result<()> {
        names.iter().try_for_each(|name| self.fs.unlink(Ino::ROOT, Name::new(name.as_bytes())?).map(drop))
    }
}

impl Act<Ssd> for Measure {
    type Out = std::result::Result<Vec<u128>, Box<dyn std::error::Error>>;

    fn on<V: Volume<Ssd>>(self) -> Self::Out {
        V::format(&self.device, &FormatOptions { inodes: Some(400_000), ..FormatOptions::default() })?;
        let options = MountOptions { background_interval_ns: Some(0), ..MountOptions::default() };
        let fs = V::mount(&self.device, &options)?;
        let mut bench = Bench { fs, file: Ino::ROOT, buffer: vec![1; LARGE], bytes: LARGE };
        bench.file = bench.create("data")?;
        (0..FILE_BYTES / LARGE).try_for_each(|number| bench.write(number * LARGE))?;
        if self.operation == "read-logs" {
            bench.bytes = PAGE;
            (0..FILE_BYTES / PAGE).try_for_each(|number| bench.write(bench.place(number)))?;
        }
        bench.bytes = self.bytes;
        Ok(self.latencies_ns(&mut bench)?)
    }
}

impl Measure {
    fn latencies_ns<F: FileSystem>(&self, bench: &mut Bench<F>) -> Result<Vec<u128>> {
        let (operation, bytes, calls) = (&self.operation[..], self.bytes, self.calls);
        let names: Vec<String> = (0..calls).map(|number| format!("file-{number}")).collect();
        if ["rename", "unlink"].contains(&operation) {
            names.iter().try_for_each(|name| bench.create(name).map(|ino| bench.fs.forget(ino, 1)))?;
        }
        let round = FILE_BYTES / PAGE.max(bytes);
        let mut latencies_ns = Vec::with_capacity(calls);
        for number in 0..calls {
            if number % round == 0 {
                // Not what was there before: a page that is not modified is not written.
                bench.buffer[..bytes].fill(((number / round) as u8).wrapping_add(2));
            }
            let start = Instant::now();
            bench.call(operation, number, &names)?;
            latencies_ns.push(start.elapsed().as_nanos());
            if operation == "file" && (number + 1) % BATCH == 0 {
                bench.remove(&names[number + 1 - BATCH..=number])?;
            }
        }
        Ok(latencies_ns)
    }
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file_system, operation, bytes, calls] = &arguments[..] else {
        return Err("four arguments are wanted: file system, operation, bytes, calls".into());
    };
    let kind = Kind::named(file_system).ok_or("no such file system")?;
    let mut profile = Profile::named("free")?;
    if kind.identity().needs == Needs::MemoryArea {
        profile.firmware.kind = Firmware::Memory;
        profile.firmware.memory_bytes = MEMORY_BYTES;
    }
    let (bytes, calls) = (bytes.parse()?, calls.parse()?);
    let device = Arc::new(Ssd::try_in_memory(&profile, SSD_BYTES, &OpenOptions::default())?);
    let measure = Measure { device, operation: operation.clone(), bytes, calls };
    let mut latencies_ns = kind.with(measure)?;
    latencies_ns.sort_unstable();
    let percentile = |percent: usize| latencies_ns[(calls - 1) * percent / 100];
    println!("{operation} {bytes}: p10 {} p50 {} p90 {} ns", percentile(10), percentile(50), percentile(90));
    Ok(())
}
