//! The probes: how each kind of published figure is measured on the emulator.

use amphi_device::{
    BaBuffer, BlockPort, BytePort, Completion, EntryId, Error, Lpa, PAGE_BYTES, Result, Structure,
};
use amphi_rt::time::{now_ns, sleep_ns, sleep_until_ns};

use crate::profile::probe::{Kind, Probe};
use crate::{Profile, Ssd};

const TAG: Structure = Structure::Other;
const CAPACITY: u64 = 64 << 20;
const SECOND: u64 = 1_000_000_000;

/// Measures a figure. Called inside a Sim.
pub(super) fn measure(probe: Probe, profile: &Profile) -> Result<f64> {
    let bytes = probe.bytes;
    match probe.kind {
        Kind::Load => load(profile, bytes),
        Kind::Store => post(profile, bytes),
        Kind::Persist => persist(profile, bytes),
        Kind::DmaRead => dma_read(profile, bytes),
        Kind::FlashRead => flash_read(profile, bytes),
        Kind::FlashWrite => flash_write(profile, bytes),
        Kind::BlockRead => Ok(1e6 / read_rate(profile, bytes, 1)?),
        Kind::BlockWrite => Ok(1e6 / write_rate(profile, bytes, 1)?),
        Kind::ReadRate(depth) => Ok(gb_s(bytes, read_rate(profile, bytes, depth)?)),
        Kind::WriteRate(depth) => Ok(gb_s(bytes, write_rate(profile, bytes, depth)?)),
        Kind::InternalRead => Ok(internal_rates(profile, bytes)?.0),
        Kind::InternalWrite => Ok(internal_rates(profile, bytes)?.1),
    }
}

fn gb_s(bytes: usize, rate: f64) -> f64 {
    rate * bytes as f64 / 1e9
}

fn device(profile: &Profile) -> Ssd {
    Ssd::in_memory(profile, CAPACITY)
}

/// Mean time of `work`, in us, over some rounds; what `between` rounds happens is not counted.
fn mean_us(
    rounds: u64,
    mut work: impl FnMut(u64) -> Result<()>,
    mut between: impl FnMut() -> Result<()>,
) -> Result<f64> {
    let mut spent = 0;
    for round in 0..rounds {
        let start = now_ns();
        work(round)?;
        spent += now_ns() - start;
        between()?;
    }
    Ok(spent as f64 / rounds as f64 / 1e3)
}

/// Stores bytes and posts them, page by page as the port wants it.
fn store(ssd: &Ssd, at: u64, bytes: &[u8]) -> Result<()> {
    let mut from = at;
    for part in bytes.chunks(PAGE_BYTES) {
        ssd.store(from, part, None, TAG)?;
        ssd.flush_lines(from, part.len());
        from += part.len() as u64;
    }
    ssd.fence();
    Ok(())
}

fn rounds(bytes: usize) -> u64 {
    ((4 << 20) / bytes as u64).clamp(4, 100)
}

/// A load of bytes that the device's memory holds.
fn load(profile: &Profile, bytes: usize) -> Result<f64> {
    let ssd = device(profile);
    let mut buffer = vec![1; bytes];
    store(&ssd, 0, &buffer)?;
    ssd.verify_read()?;
    mean_us(rounds(bytes), |_| ssd.load(0, &mut buffer, TAG), || Ok(()))
}

/// The same by the device's DMA engine.
fn dma_read(profile: &Profile, bytes: usize) -> Result<f64> {
    let ssd = device(profile);
    let mut buffer = vec![1; bytes];
    store(&ssd, 0, &buffer)?;
    ssd.verify_read()?;
    mean_us(rounds(bytes), |_| ssd.load_dma(0, &mut buffer, TAG), || Ok(()))
}

/// A store of bytes until they are posted.
fn post(profile: &Profile, bytes: usize) -> Result<f64> {
    let ssd = device(profile);
    let data = vec![1; bytes];
    mean_us(rounds(bytes), |_| store(&ssd, 0, &data), || ssd.verify_read())
}

/// A store of bytes until they are durable.
fn persist(profile: &Profile, bytes: usize) -> Result<f64> {
    let ssd = device(profile);
    let data = vec![1; bytes];
    // Pages that a page cache would have to fetch first are there already.
    store(&ssd, 0, &data)?;
    ssd.verify_read()?;
    mean_us(rounds(bytes), |_| store(&ssd, 0, &data).and_then(|()| ssd.verify_read()), || Ok(()))
}

/// What a load of one line takes more when the line is in flash.
fn flash_read(profile: &Profile, bytes: usize) -> Result<f64> {
    let from_memory = load(profile, bytes)?;
    let mut profile = profile.clone();
    // Where memory caches pages, the loads are of pages that were evicted.
    profile.firmware.memory_bytes = 64 << 10;
    let ssd = device(&profile);
    for page in 0..400 {
        ssd.write(Lpa(page), &[1; PAGE_BYTES], TAG)?;
    }
    sleep_ns(SECOND);
    let mut buffer = vec![0; bytes];
    Ok(mean_us(100, |page| ssd.load(Lpa(page).byte(0), &mut buffer, TAG), || Ok(()))? - from_memory)
}

/// The pace of writes to a single die once all its buffers are full.
fn flash_write(profile: &Profile, _bytes: usize) -> Result<f64> {
    let mut profile = profile.clone();
    (profile.flash.channels, profile.flash.ways) = (1, 1);
    profile.firmware.memory_bytes = 64 << 10;
    let ssd = device(&profile);
    let page = [1; PAGE_BYTES];
    let full = profile.flash.write_buffer_pages + 256;
    for round in 0..full {
        ssd.write(Lpa(round), &page, TAG)?;
    }
    mean_us(1000, |round| ssd.write(Lpa(full + round), &page, TAG), || Ok(()))
}

/// Commands a second, `depth` of them in flight; those under way for longest are waited for first.
fn rate(commands: u64, depth: usize, mut submit: impl FnMut(u64) -> Result<u64>) -> Result<f64> {
    let start = now_ns();
    let mut done = vec![0_u64; depth];
    for command in 0..commands {
        let slot = command as usize % depth;
        sleep_until_ns(done[slot]);
        done[slot] = submit(command)?;
    }
    let end = done.into_iter().max().unwrap_or(start);
    if end <= start {
        return Err(Error::Unsupported("being timed: its profile gives commands no time"));
    }
    Ok(commands as f64 * 1e9 / (end - start) as f64)
}

fn commands(bytes: usize) -> u64 {
    (CAPACITY / bytes as u64).min(4096)
}

/// Reads a second of consecutive pages that are in flash.
fn read_rate(profile: &Profile, bytes: usize, depth: usize) -> Result<f64> {
    let mut profile = profile.clone();
    profile.firmware.memory_bytes = 64 << 10;
    let ssd = device(&profile);
    let mut buffer = vec![1; bytes];
    let pages = (bytes / PAGE_BYTES) as u64;
    for command in 0..commands(bytes) {
        ssd.write(Lpa(command * pages), &buffer, TAG)?;
    }
    sleep_ns(SECOND);
    // The ticket is not waited for: its completion time is known, and reads change nothing.
    rate(commands(bytes), depth, |command| {
        let ticket = ssd.submit_read(Lpa(command * pages), &mut buffer, TAG)?;
        let done = ticket.done_at_ns();
        std::mem::forget(ticket);
        Ok(done)
    })
}

/// Writes a second of consecutive pages, on an empty device.
fn write_rate(profile: &Profile, bytes: usize, depth: usize) -> Result<f64> {
    let ssd = device(profile);
    let buffer = vec![1; bytes];
    let buffers = [&buffer[..]];
    let pages = (bytes / PAGE_BYTES) as u64;
    rate(commands(bytes), depth, |command| {
        let ticket = ssd.submit_write(Lpa(command * pages), &buffers, TAG)?;
        let done = ticket.done_at_ns();
        std::mem::forget(ticket);
        Ok(done)
    })
}

/// What a pin loads and a flush of its entry writes in a second, in GB/s: pages that are in flash, and the
/// time of the whole command, as figure 8 of 2B-SSD measures it.
fn internal_rates(profile: &Profile, bytes: usize) -> Result<(f64, f64)> {
    const ROUNDS: u64 = 4;
    let ssd = device(profile);
    let pages = (bytes / PAGE_BYTES) as u64;
    let data = vec![1; bytes];
    for round in 0..ROUNDS {
        ssd.write(Lpa(round * pages), &data, TAG)?;
    }
    let (mut pinning, mut flushing) = (0, 0);
    for round in 0..ROUNDS {
        sleep_ns(SECOND);
        let began = now_ns();
        ssd.pin(EntryId(1), 0, Lpa(round * pages), bytes as u64)?;
        let pinned = now_ns();
        ssd.flush_entry(EntryId(1))?;
        pinning += pinned - began;
        flushing += now_ns() - pinned;
    }
    if pinning == 0 || flushing == 0 {
        return Err(Error::Unsupported("being timed: its profile gives pins no time"));
    }
    let rate = |ns: u64| (ROUNDS * bytes as u64) as f64 / ns as f64;
    Ok((rate(pinning), rate(flushing)))
}
