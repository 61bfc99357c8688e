//! How long a mount takes after a power cut with a log that is nearly full: ByteFS §5.5.

use std::sync::Arc;

use amphi_fs_bytefs::{ByteFs, FormatOptions, MountOptions};
use amphi_rt::{Sim, time};
use amphi_ssd::{OpenOptions, Ssd};
use amphi_vfs::{Cred, FileSystem, FileType, Ino, Name, WriteMode};
use anyhow::{Context, Result, anyhow};

use super::definition::Variation;
use super::machine::Machine;
use super::measure::bar;
use super::system::System;
use crate::figure::Group;

/// Bytes over which the small writes spread, at scale 1: 2 GB.
const SPREAD: u64 = 2 << 30;
/// The cut comes when the log is so full, in percent; above 85 the firmware cleans it (§4.3).
const FULL_PERCENT: u64 = 84;
const PAGE: u64 = 4096;

/// Fills the log with rows of a database, cuts the power, and mounts again.
///
/// # Errors
/// The device or the file system failed.
pub(super) fn groups(profile: &str, variation: &Variation, scale: f64, seed: u64) -> Result<Vec<Group>> {
    let machine =
        Machine::new(profile, System::Bytefs, scale, variation).map_err(|message| anyhow!("{message}"))?;
    let pages = ((SPREAD as f64 * scale) as u64 / PAGE).max(4096).next_multiple_of(256);
    Sim::new(seed)
        .host(machine.host.clone())
        .blocking_limit(None)
        .try_run(|| in_sim(&machine, pages, seed))
        .map_err(|failure| anyhow!("{failure}"))?
}

fn in_sim(machine: &Machine, pages: u64, seed: u64) -> Result<Vec<Group>> {
    let capacity = (4 * pages * PAGE).max(machine.capacity_bytes);
    let ssd = Ssd::try_in_memory(&machine.device, capacity, &OpenOptions::default())?;
    ByteFs::format(&ssd, &FormatOptions::default())?;
    let options = || MountOptions { write_back_interval_ns: 0, ..MountOptions::default() };
    let fs = ByteFs::mount(Arc::new(ssd), options())?;
    let name = Name::new(b"table")?;
    let ino = fs.create(Ino::ROOT, name, FileType::Regular, 0o644, 0, &Cred::ROOT)?.attr.ino;
    let how = WriteMode { direct: true, ..WriteMode::default() };
    let block = vec![1; 1 << 20];
    for part in 0..pages / 256 {
        fs.write(ino, part << 20, &block, how, &Cred::ROOT)?;
    }
    let mut rows: u64 = 0;
    loop {
        let at = rows * 7919 % pages * PAGE + rows % 31 * 128;
        fs.write(ino, at, &[rows as u8; 128], how, &Cred::ROOT)?;
        rows += 1;
        if rows.is_multiple_of(256) {
            let stats = fs.device().stats();
            if stats.log_used * 100 > FULL_PERCENT * stats.log_capacity {
                break;
            }
        }
    }
    fs.device().power_cut(seed);
    let device = Arc::clone(fs.device());
    drop(fs);
    let device = Arc::into_inner(device).context("the device is still in use")?;
    let cut_ns = time::now_ns();
    let device = device.restart()?;
    let powered_ns = time::now_ns();
    let log_bytes = device.stats().log_used;
    let fs = ByteFs::mount(Arc::new(device), options())?;
    let mounted_ns = time::now_ns();
    let found = fs.recovered();
    fs.unmount()?;
    let seconds = |ns: u64| ns as f64 / 1e9;
    let bars = vec![
        bar("power-up", seconds(powered_ns - cut_ns)),
        bar("mount with RECOVER", seconds(mounted_ns - powered_ns))
            .with("log in use", log_bytes as f64, "B")
            .with("entries scanned", found.entries_scanned as f64, "")
            .with("pages written to flash", found.pages_written as f64, ""),
        bar("together", seconds(mounted_ns - cut_ns)),
    ];
    Ok(vec![Group { label: "after a power cut".to_owned(), bars }])
}
