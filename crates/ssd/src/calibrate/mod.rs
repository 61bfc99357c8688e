//! Calibration: what the emulator does, beside what was published about the device it stands for.
//!
//! A profile lists the published points it answers for; each names one of the [probes]. A probe uses the
//! device as a host would, and derives the figure from times it sees, not from the profile's parameters. In
//! virtual time the figures are the same everywhere; [`real`] asks how well real waits keep to a command's
//! time on this machine.

mod probes;
mod real;

use amphi_device::Result;
use amphi_rt::Sim;
use serde::Serialize;

use crate::Profile;
use crate::profile::probe;
pub use real::{RealTime, real_time};

/// A figure measured on the emulator, beside the published one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Calibration {
    /// The probe, with `@` and a number of bytes where it takes one.
    pub name: String,
    /// What the emulator did; nothing where it cannot do that at all.
    pub measured: Option<f64>,
    /// What was published.
    pub published: f64,
    /// Unit of both.
    pub unit: String,
    /// Where it was published.
    pub source: String,
    /// Why the point is not met, where the profile says that it cannot be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unmet: Option<String>,
}

impl Calibration {
    /// How far the emulator is off, as a part of the published figure.
    #[must_use]
    pub fn error(&self) -> Option<f64> {
        self.measured.map(|measured| (measured - self.published) / self.published)
    }

    /// Whether the point is met within `tolerance`, a part of the published figure.
    #[must_use]
    pub fn is_met(&self, tolerance: f64) -> bool {
        self.error().is_some_and(|error| error.abs() <= tolerance)
    }
}

/// Measures every published point of a profile, in virtual time: the same profile gives the same figures
/// everywhere.
///
/// # Errors
/// The profile describes a device that cannot do what a probe needs.
pub fn calibrate(profile: &Profile) -> Result<Vec<Calibration>> {
    profile
        .published
        .iter()
        .map(|point| {
            let measured = match probe::find(&point.name) {
                Ok(probe) => Some(Sim::new(1).run(|| probes::measure(probe, profile))?),
                // The profile's own check refuses a point that has neither a probe nor a reason.
                Err(_) => None,
            };
            Ok(Calibration {
                name: point.name.clone(),
                measured,
                published: point.value,
                unit: point.unit.clone(),
                source: point.source.clone(),
                unmet: point.unmet.clone(),
            })
        })
        .collect()
}
