//! How long a mount takes after a power cut while threads append and sync: AugeFS §VII-G.

use std::sync::Arc;

use amphi_rt::{Sim, task, time};
use amphi_ssd::{OpenOptions, Ssd};
use amphi_vfs::{Cred, FileSystem, FileType, Ino, Name, WriteMode};
use anyhow::{Context, Result, anyhow};

use super::definition::{Definition, Variation};
use super::machine::Machine;
use super::measure::bar;
use super::system::System;
use crate::figure::Group;

/// Threads, each with a file of its own (§VII-G).
const THREADS: u64 = 24;
/// Bytes that each of them appends, at scale 1 (§VII-G: 1 GB).
const BYTES: u64 = 1 << 30;
const PAGE: u64 = 4096;

/// The time of a mount on each file system.
///
/// # Errors
/// The device or a file system failed.
pub(super) fn groups(
    definition: &Definition,
    variation: &Variation,
    scale: f64,
    seed: u64,
) -> Result<Vec<Group>> {
    let mut bars = Vec::new();
    for system in &definition.systems {
        let ns = mount_ns(*system, &definition.profile, variation, scale, seed)?;
        bars.push(bar(system.title(), ns as f64 / 1e6));
    }
    let alone = Variation { log_tasks: Some(1), ..variation.clone() };
    let ns = mount_ns(System::Augefs, &definition.profile, &alone, scale, seed)?;
    Ok(vec![
        Group { label: "mount after a power cut".to_owned(), bars },
        Group {
            label: "the same, one task at the metadata store's log".to_owned(),
            bars: vec![bar(System::Augefs.title(), ns as f64 / 1e6)],
        },
    ])
}

fn mount_ns(system: System, profile: &str, variation: &Variation, scale: f64, seed: u64) -> Result<u64> {
    let machine = Machine::new(profile, system, scale, variation).map_err(|message| anyhow!("{message}"))?;
    let pages = (BYTES as f64 * scale) as u64 / PAGE;
    Sim::new(seed)
        .host(machine.host.clone())
        .blocking_limit(None)
        .try_run(|| in_sim(system, &machine, pages, seed))
        .map_err(|failure| anyhow!("{failure}"))?
}

fn in_sim(system: System, machine: &Machine, pages: u64, seed: u64) -> Result<u64> {
    let ssd = Ssd::try_in_memory(&machine.device, machine.capacity_bytes, &OpenOptions::default())?;
    let ssd = Arc::new(ssd);
    system.format(&ssd, machine)?;
    let mounted = system.mount(&ssd, machine)?;
    let fs = mounted.file_system();
    let files: Vec<Ino> = (0..THREADS)
        .map(|number| {
            let name = format!("file-{number}");
            let name = Name::new(name.as_bytes())?;
            Ok(fs.create(Ino::ROOT, name, FileType::Regular, 0o644, 0, &Cred::ROOT)?.attr.ino)
        })
        .collect::<Result<_>>()?;
    task::scope(|scope| {
        let fs = &fs;
        let threads: Vec<_> =
            files.iter().map(|ino| scope.spawn("appends", move || append(&**fs, *ino, pages))).collect();
        threads.into_iter().try_for_each(|thread| thread.join())
    })?;
    ssd.power_cut(seed);
    // Its tasks meet a device without power, and end.
    drop(fs);
    drop(mounted);
    let ssd = Arc::into_inner(ssd).context("the device is still in use")?;
    let ssd = Arc::new(ssd.restart()?);
    let began = time::now_ns();
    let mounted = system.mount(&ssd, machine)?;
    let took = time::now_ns() - began;
    let fs = mounted.file_system();
    for number in 0..THREADS {
        let name = format!("file-{number}");
        let size = fs.lookup(Ino::ROOT, Name::new(name.as_bytes())?)?.attr.size;
        anyhow::ensure!(size == pages * PAGE, "{name} has {size} B after recovery");
    }
    drop(fs);
    mounted.unmount()?;
    Ok(took)
}

fn append(fs: &dyn FileSystem, ino: Ino, pages: u64) -> Result<()> {
    let how = WriteMode { append: true, ..WriteMode::default() };
    for page in 0..pages {
        fs.write(ino, 0, &[page as u8; PAGE as usize], how, &Cred::ROOT)?;
        fs.fsync(ino, false)?;
    }
    Ok(())
}
