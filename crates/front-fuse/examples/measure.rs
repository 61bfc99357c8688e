//! What the FUSE path itself costs: the model behind a mount, and how long single operations take on it.
//!
//! `cargo run --release -p amphi-front-fuse --example measure -- [auto|ring|device [DIR]]`. With DIR, a
//! directory that exists already is measured instead, for comparison: a tmpfs, an ext4.

use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use amphi_front_fuse::{MountOptions, Transport, mount};
use amphi_model::Model;
use amphi_rt::time::now_ns;
use amphi_vfs::{Cred, FileSystem, Ino, SetAttr};

const ROUNDS: usize = 5_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let transport = arguments.next().map_or(Ok(Transport::Auto), |text| text.parse())?;
    if let Some(directory) = arguments.next() {
        return measure(&PathBuf::from(directory).join("measured"));
    }
    let directory = tempfile::tempdir()?;
    let model = Model::new();
    let uid = Some(rustix::process::geteuid().as_raw());
    model.setattr(Ino::ROOT, &SetAttr { uid, ..SetAttr::default() }, &Cred::ROOT)?;
    let options = MountOptions { transport, ..MountOptions::default() };
    let session = mount(Arc::new(model), directory.path(), &options)?;
    let outcome = measure(&directory.path().join("measured"));
    session.unmount()?;
    session.wait()?;
    outcome
}

fn measure(directory: &Path) -> Result<(), Box<dyn Error>> {
    fs::create_dir(directory)?;
    let path = |number: usize| directory.join(format!("file-{number:06}"));
    println!("{:24} {:>10} {:>10} {:>10}", "operation", "ops/s", "p50 us", "p99 us");
    report("create and close", |number| File::create_new(path(number)).map(drop))?;
    report("stat, known", |number| path(number).metadata().map(drop))?;
    report("stat, absent", |number| {
        drop(directory.join(format!("absent-{number}")).metadata());
        Ok(())
    })?;
    report("open and close", |number| File::open(path(number)).map(drop))?;
    let file = OpenOptions::new().read(true).write(true).open(path(0))?;
    let block = [7; 4096];
    report("write 4 KiB, append", |number| file.write_all_at(&block, number as u64 * 4096))?;
    report("write 4 KiB, in place", |number| file.write_all_at(&block, (number % 64) as u64 * 4096))?;
    report("write 64 B", |number| file.write_all_at(&block[..64], (number % 64) as u64 * 64))?;
    report("read 4 KiB, cached", |number| file.read_exact_at(&mut [0; 4096], (number % 64) as u64 * 4096))?;
    report("fsync", |_| file.sync_data())?;
    report("rename", |number| fs::rename(path(number), path(number + ROUNDS)))?;
    report("unlink", |number| fs::remove_file(path(number + ROUNDS)))?;
    fs::remove_dir(directory)?;
    Ok(())
}

/// Times `operation` called with 0, 1, … and prints the distribution.
fn report(name: &str, mut operation: impl FnMut(usize) -> std::io::Result<()>) -> Result<(), Box<dyn Error>> {
    let mut times = Vec::with_capacity(ROUNDS);
    let start = now_ns();
    let mut before = start;
    for number in 0..ROUNDS {
        operation(number)?;
        let after = now_ns();
        times.push(after - before);
        before = after;
    }
    let rate = ROUNDS as f64 * 1e9 / (before - start) as f64;
    times.sort_unstable();
    let us = |index: usize| times[index] as f64 / 1e3;
    println!("{name:24} {rate:>10.0} {:>10.2} {:>10.2}", us(ROUNDS / 2), us(ROUNDS * 99 / 100));
    Ok(())
}
