//! Calibration: what the emulator does in virtual time, beside what was published about the device it stands for.
//!
//! A profile lists the published points it answers for; each names one of the probes here. A probe uses the device as a host
//! would, and derives the figure from times it sees, not from the profile's parameters.

use amphi_device::{BlockPort, BytePort, BytePortExt, Completion, Lpa, PAGE_BYTES, Result, Structure};
use amphi_rt::Sim;
use amphi_rt::time::now_ns;
use serde::Serialize;

use crate::{Profile, Ssd};

/// A figure measured on the emulator, beside the published one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Calibration {
    /// The probe.
    pub name: String,
    /// What the emulator did.
    pub measured: f64,
    /// What was published.
    pub published: f64,
    /// Unit of both.
    pub unit: String,
    /// Where it was published.
    pub source: String,
}

impl Calibration {
    /// How far the emulator is off, as a part of the published figure.
    #[must_use]
    pub fn error(&self) -> f64 {
        (self.measured - self.published) / self.published
    }
}

const TAG: Structure = Structure::Other;
const CAPACITY: u64 = 256 << 20;

/// A probe: a published point's name, and how its figure is measured.
type Probe = (&'static str, fn(&Profile) -> Result<f64>);

const PROBES: [Probe; 6] = [
    ("line-read-us", line_read),
    ("line-write-us", line_write),
    ("flash-read-us", flash_read),
    ("flash-write-us", flash_write),
    ("block-read-gb-s", block_read),
    ("block-write-gb-s", block_write),
];

/// The names a profile's published points may have.
pub(crate) fn probe_names() -> impl Iterator<Item = &'static str> {
    PROBES.iter().map(|(name, _)| *name)
}

/// Measures every published point of a profile, in virtual time: the same profile gives the same figures everywhere.
///
/// # Errors
/// The profile describes a device that cannot do what a probe needs.
pub fn calibrate(profile: &Profile) -> Result<Vec<Calibration>> {
    profile
        .published
        .iter()
        .map(|point| {
            let probe = PROBES.iter().find(|(name, _)| *name == point.name);
            let (_, measure) = probe.ok_or(amphi_device::Error::Unsupported("a probe of that name"))?;
            Ok(Calibration {
                name: point.name.clone(),
                measured: Sim::new(1).run(|| measure(profile))?,
                published: point.value,
                unit: point.unit.clone(),
                source: point.source.clone(),
            })
        })
        .collect()
}

fn device(profile: &Profile) -> Ssd {
    Ssd::in_memory(profile, CAPACITY)
}

/// Mean time of `work`, in us, over some rounds.
fn mean_us(rounds: u64, mut work: impl FnMut(u64) -> Result<()>) -> Result<f64> {
    let start = now_ns();
    for round in 0..rounds {
        work(round)?;
    }
    Ok((now_ns() - start) as f64 / rounds as f64 / 1e3)
}

/// A load of one line that the log holds.
fn line_read(profile: &Profile) -> Result<f64> {
    let ssd = device(profile);
    ssd.persist(0, &[1; 64], None, TAG)?;
    mean_us(100, |_| ssd.load(0, &mut [0; 64], TAG))
}

/// A store of one line until it is durable.
fn line_write(profile: &Profile) -> Result<f64> {
    let ssd = device(profile);
    mean_us(100, |round| ssd.persist(round * 64, &[1; 64], None, TAG))
}

/// What a load of one line takes more when the line is in flash.
fn flash_read(profile: &Profile) -> Result<f64> {
    let from_log = line_read(profile)?;
    let ssd = device(profile);
    ssd.write(Lpa(0), &[1; PAGE_BYTES], TAG)?;
    amphi_rt::time::sleep_ns(1_000_000_000);
    Ok(mean_us(100, |_| ssd.load(0, &mut [0; 64], TAG))? - from_log)
}

/// The pace of writes to a single die once its write buffer is full.
fn flash_write(profile: &Profile) -> Result<f64> {
    let mut profile = profile.clone();
    (profile.flash.channels, profile.flash.ways) = (1, 1);
    let ssd = device(&profile);
    let page = [1; PAGE_BYTES];
    let full = profile.flash.write_buffer_pages + 256;
    mean_us(full, |round| ssd.write(Lpa(round), &page, TAG))?;
    mean_us(1000, |round| ssd.write(Lpa(full + round), &page, TAG))
}

/// Bytes a second of `commands` reads or writes of 128 KiB, 32 in flight.
fn throughput(commands: u64, mut submit: impl FnMut(u64) -> Result<u64>) -> Result<f64> {
    const DEPTH: usize = 32;
    let start = now_ns();
    let mut done = [0_u64; DEPTH];
    for command in 0..commands {
        let slot = command as usize % DEPTH;
        amphi_rt::time::sleep_until_ns(done[slot]);
        done[slot] = submit(command)?;
    }
    let end = done.into_iter().max().unwrap_or(start);
    Ok(commands as f64 * f64::from(128 << 10) / (end - start) as f64)
}

const PAGES: u64 = 32;

/// Sustained reads.
fn block_read(profile: &Profile) -> Result<f64> {
    let ssd = device(profile);
    let mut buffer = vec![1; PAGES as usize * PAGE_BYTES];
    for command in 0..CAPACITY / buffer.len() as u64 {
        ssd.write(Lpa(command * PAGES), &buffer, TAG)?;
    }
    amphi_rt::time::sleep_ns(1_000_000_000);
    // The ticket is not waited for: its completion time is known, and reads change nothing.
    throughput(CAPACITY / buffer.len() as u64, |command| {
        let ticket = ssd.submit_read(Lpa(command * PAGES), &mut buffer, TAG)?;
        let done = ticket.done_at_ns();
        std::mem::forget(ticket);
        Ok(done)
    })
}

/// Sustained writes, on an empty device.
fn block_write(profile: &Profile) -> Result<f64> {
    let ssd = device(profile);
    let buffer = vec![1; PAGES as usize * PAGE_BYTES];
    let buffers = [&buffer[..]];
    throughput(CAPACITY / buffer.len() as u64, |command| {
        let ticket = ssd.submit_write(Lpa(command * PAGES), &buffers, TAG)?;
        let done = ticket.done_at_ns();
        std::mem::forget(ticket);
        Ok(done)
    })
}
