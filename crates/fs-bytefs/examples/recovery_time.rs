//! How long a mount takes after a power cut with a full write log, in the device's time (virtual) and of this machine (real), beside the paper's 4.2 s (§5.5), of
//! which it gives 0.9 s to loading the device's memory and 2.7 s to scanning the log and flushing it.
//!
//! `cargo run --release -p amphi-fs-bytefs --example recovery_time [PROFILE]`; the profile is `mssd-pcie3` unless told otherwise.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::sync::Arc;
use std::time::Instant;

use amphi_fs_bytefs::{ByteFs, FormatOptions, MountOptions};
use amphi_rt::{Sim, time};
use amphi_ssd::{Profile, Ssd};
use amphi_vfs::{Cred, FileSystem, FileType, Ino, Name, WriteMode};

const DEVICE_BYTES: u64 = 4 << 30;
/// Pages over which the small writes of the workload spread: 2 GB.
const PAGES: usize = 512 << 10;
/// A cut comes when the log is so full; above 85 % the firmware cleans it (§4.3).
const FULL: f64 = 0.84;

fn main() {
    let name = std::env::args().nth(1).unwrap_or_else(|| "mssd-pcie3".to_owned());
    let start = Instant::now();
    Sim::new(1).run(move || measure(&name, start));
}

fn measure(name: &str, start: Instant) {
    let profile = Profile::named(name).expect("a built-in profile");
    let device = Ssd::in_memory(&profile, DEVICE_BYTES);
    ByteFs::format(&device, &FormatOptions::default()).expect("it can be formatted");
    let options = || MountOptions { write_back_interval_ns: 0, ..MountOptions::default() };
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
}
