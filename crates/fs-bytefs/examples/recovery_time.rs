//! How long a mount takes after a power cut with a full write log, in the device's time (virtual) and of this
//! machine (real), beside the paper's 4.2 s (§5.5), of which it gives 0.9 s to loading the device's memory
//! and 2.7 s to scanning the log and flushing it.
//!
//! `cargo run --release -p amphi-fs-bytefs --example recovery_time [PROFILE [CUTS]]`; the profile is
//! `mssd-pcie3` unless told otherwise. With CUTS the power is then cut again during this recovery, at so many
//! of the firmware's steps, spread over all of them: the next one must find every row, and the check nothing.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::sync::Arc;
use std::time::Instant;

use amphi_fs_bytefs::{ByteFs, FormatOptions, MountOptions, fsck};
use amphi_rt::{Sim, time};
use amphi_ssd::{Profile, Ssd};
use amphi_vfs::{Cred, FileSystem, FileType, Ino, Name, WriteMode};

const DEVICE_BYTES: u64 = 4 << 30;
/// Pages over which the small writes of the workload spread: 2 GB.
const PAGES: usize = 512 << 10;
/// A cut comes when the log is so full; above 85 % the firmware cleans it (§4.3).
const FULL: f64 = 0.84;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| "mssd-pcie3".to_owned());
    let cuts = arguments.next().map_or(0, |cuts| cuts.parse().expect("CUTS is a number"));
    let start = Instant::now();
    Sim::new(1).run(move || measure(&name, cuts, start));
}

/// Nothing runs in the background.
fn options() -> MountOptions {
    MountOptions { write_back_interval_ns: 0, ..MountOptions::default() }
}

fn measure(name: &str, cuts: u64, start: Instant) {
    let profile = Profile::named(name).expect("a built-in profile");
    let device = Ssd::in_memory(&profile, DEVICE_BYTES);
    ByteFs::format(&device, &FormatOptions::default()).expect("it can be formatted");
    let fs = ByteFs::mount(Arc::new(device), options()).expect("it can be mounted");
    let file = Name::new(b"table").expect("a plain name");
    let ino =
        fs.create(Ino::ROOT, file, FileType::Regular, 0o644, 0, &Cred::ROOT).expect("there is room").attr.ino;
    let how = WriteMode { direct: true, ..WriteMode::default() };
    for mb in 0..PAGES / 256 {
        fs.write(ino, (mb as u64) << 20, &vec![1; 1 << 20], how, &Cred::ROOT).expect("there is room");
    }
    // Rows of a database: 128 bytes here and there, each durable when the call returns.
    let region = profile.log.region_bytes as f64;
    let mut rows = 0_usize;
    loop {
        let at = (rows * 7919 % PAGES * 4096 + rows % 31 * 128) as u64;
        fs.write(ino, at, &[rows as u8; 128], how, &Cred::ROOT).expect("it can be overwritten");
        rows += 1;
        if rows.is_multiple_of(4096) && fs.device().stats().log_used as f64 > FULL * region {
            break;
        }
    }
    let used = fs.device().stats().log_used;
    println!(
        "prepared in {:.1} s of this machine: {rows} rows, {} MB of log in use",
        start.elapsed().as_secs_f64(),
        used >> 20
    );
    fs.device().power_cut(1);
    let device = Arc::clone(fs.device());
    drop(fs);
    let device = Arc::into_inner(device).expect("nobody else uses the device");
    let spare = (cuts > 0).then(|| device.fork().expect("there is memory for a second device"));
    let (virtual_ns, real) = (time::now_ns(), Instant::now());
    let device = device.restart().expect("the device powers up");
    let (powered_ns, powered) = (time::now_ns(), real.elapsed());
    let fs = ByteFs::mount(Arc::new(device), options()).expect("it can be mounted");
    let found = fs.recovered();
    let seconds = |ns: u64| ns as f64 / 1e9;
    println!(
        "power-up {:.2} s virtual, {:.2} s real; mount with RECOVER {:.2} s virtual, {:.2} s real; together {:.2} s virtual; the paper: 4.2 s",
        seconds(powered_ns - virtual_ns),
        powered.as_secs_f64(),
        seconds(time::now_ns() - powered_ns),
        (real.elapsed() - powered).as_secs_f64(),
        seconds(time::now_ns() - virtual_ns),
    );
    println!("{} entries scanned, {} pages written to flash", found.entries_scanned, found.pages_written);
    if let Some(spare) = spare {
        let expected = told(&fs, ino);
        drop(fs);
        cut_again(spare, ino, cuts, expected);
    }
}

/// A number that tells what the table holds.
fn told(fs: &ByteFs<Ssd>, ino: Ino) -> u32 {
    let mut buffer = vec![0; 1 << 20];
    let mut sum = 0;
    for mb in 0..PAGES / 256 {
        let read = fs.read(ino, (mb as u64) << 20, &mut buffer, true).expect("it can be read");
        assert_eq!(read, buffer.len(), "the table is whole");
        sum = crc32c::crc32c_append(sum, &buffer);
    }
    sum
}

/// Recovers copies of `device`, cuts the power at `cuts` of the steps, recovers again, and compares.
fn cut_again(device: Ssd, ino: Ino, cuts: u64, expected: u32) {
    const MANY: u64 = 1 << 60;
    let device =
        device.restart().expect("the device powers up").forkable().expect("there is memory for an origin");
    let whole = Arc::new(device.fork_device().expect("there is memory"));
    whole.cut_after_steps(MANY, 1);
    let fs = ByteFs::mount(Arc::clone(&whole), options()).expect("it can be mounted");
    let steps = MANY - whole.steps_before_cut().expect("a cut is armed");
    drop((fs, whole));
    println!("recovery takes {steps} steps of the firmware; the power is cut at {cuts} of them");
    for cut in 0..cuts {
        let at = steps * (2 * cut + 1) / (2 * cuts);
        let again = Arc::new(device.fork_device().expect("there is memory"));
        again.cut_after_steps(at, cut);
        let outcome = ByteFs::mount(Arc::clone(&again), options());
        assert!(outcome.is_err(), "the power went during the mount");
        let again = Arc::into_inner(again).expect("nobody else uses the device");
        let again = Arc::new(again.restart().expect("the device powers up"));
        let fs = ByteFs::mount(Arc::clone(&again), options()).expect("it can be mounted");
        let found = fs.recovered();
        assert_eq!(told(&fs, ino), expected, "cut at step {at}: a row differs");
        fs.unmount().expect("it can be unmounted");
        let report = fsck::check(&*again, &mut |_| {}).expect("it can be checked");
        assert!(report.findings.is_empty(), "cut at step {at}: {:#?}", report.findings);
        println!(
            "step {at}: every row is there, the check finds nothing; {} entries scanned again, {} pages written",
            found.entries_scanned, found.pages_written
        );
    }
}
