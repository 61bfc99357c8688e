//! How well real time is kept: the median time of a command on this machine, beside the time the device says
//! it takes.

use amphi_device::{BytePort, BytePortExt, Result, Structure};
use amphi_rt::time::now_ns;
use serde::Serialize;

use crate::{Firmware, Profile, Ssd};

/// A command's time in real time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RealTime {
    /// What the device's profile makes the command take, in ns.
    pub device_ns: u64,
    /// Median over all rounds, in ns.
    pub median_ns: u64,
    /// The slowest of a hundred, in ns.
    pub p99_ns: u64,
    /// Rounds.
    pub rounds: u64,
    /// Largest error of the median that counts as kept, as a part of the device's time.
    pub tolerance: f64,
}

impl RealTime {
    /// How far the median is off, as a part of the device's time.
    #[must_use]
    pub fn error(&self) -> f64 {
        (self.median_ns as f64 - self.device_ns as f64) / self.device_ns as f64
    }

    /// Whether the median is as near as it should be.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        self.error().abs() <= self.tolerance
    }
}

/// Times commands of 5 µs and 100 µs, in real time at dilation 1. Takes about half a second; needs a
/// processor to itself.
///
/// # Errors
/// The device fails.
///
/// # Panics
/// Never: the built-in profile is valid.
pub fn real_time() -> Result<Vec<RealTime>> {
    [(5_000, 20_000, 0.10), (100_000, 3_000, 0.03)]
        .into_iter()
        .map(|(device_ns, rounds, tolerance)| time_loads(device_ns, rounds, tolerance))
        .collect()
}

/// Times loads of one line from the device's memory, each of which takes `device_ns`.
fn time_loads(device_ns: u64, rounds: u64, tolerance: f64) -> Result<RealTime> {
    let mut profile = Profile::named("mssd-pcie3").expect("built in");
    profile.link.line_read_ns = device_ns;
    profile.firmware.kind = Firmware::Log;
    let ssd = Ssd::in_memory(&profile, 16 << 20);
    let tag = Structure::Other;
    ssd.persist(0, &[1; 64], None, tag)?;
    let mut line = [0; 64];
    let mut times = Vec::with_capacity(rounds as usize);
    for _ in 0..rounds {
        let start = now_ns();
        ssd.load(0, &mut line, tag)?;
        times.push(now_ns() - start);
    }
    times.sort_unstable();
    let at = |percent: usize| times[times.len() * percent / 100];
    Ok(RealTime { device_ns, median_ns: at(50), p99_ns: at(99), rounds, tolerance })
}
