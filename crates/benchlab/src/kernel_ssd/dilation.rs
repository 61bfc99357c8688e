//! How long the device's times must be made for the export to vanish beside them.
//!
//! What is timed is the request that a file system's commit consists of: 4 KiB written past the page cache to
//! the loop device, and a flush. Over an SSD without delays all of its time is the export's: the loop device,
//! FUSE, the daemon and the waking up between them. Over a slow one the rest is the device's.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use amphi_device::{BlockPort, Lpa, Structure};
use amphi_rt::time;
use amphi_ssd::{Firmware, OpenOptions, Ssd};
use anyhow::{Context, Result};
use rustix::fs::OFlags;
use serde::Serialize;

use super::contestant::{self, Ssds, profile_options, speed};
use crate::peers::{Attached, Served, Service, Workspace};

/// What the export may cost, in a share of the time of a request.
pub const OVERHEAD_MAX: f64 = 0.05;

/// More than this is not tried: on a machine where it does not suffice, something else has the processors,
/// and longer times do not help.
const DILATION_MAX: f64 = 1000.0;

/// Requests that are timed at each dilation.
const REQUESTS: u64 = 100;

/// A dilation, and what the export costs with it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Calibration {
    /// What the device's times are multiplied by.
    pub dilation: f64,
    /// Median time of 4 KiB written and flushed over a device without delays, ns: the export alone.
    pub export_ns: u64,
    /// Median time of the same with this dilation, ns of real time.
    pub request_ns: u64,
    /// The device's own part of that, ns of real time: the median of the same requests to the same device in
    /// virtual time, dilated.
    pub device_ns: u64,
    /// The share of `request_ns` that is not the device's.
    pub overhead: f64,
}

/// Measures with a dilation that is given, or looks for one with which the export costs less than
/// [`OVERHEAD_MAX`].
///
/// # Errors
/// The SSD cannot be exported.
pub(super) fn calibrate(
    workspace: &Workspace,
    amphi: &Path,
    ssds: &Ssds<'_>,
    wanted: Option<f64>,
) -> Result<Calibration> {
    const TRIES: u32 = 4;
    let export_ns = time_requests(workspace, amphi, &Ssds { dilation: None, ..*ssds })?;
    let undilated_ns = device_time(ssds)?;
    let at = |dilation: f64| -> Result<Calibration> {
        let request_ns = time_requests(workspace, amphi, &Ssds { dilation: Some(dilation), ..*ssds })?;
        let device_ns = (undilated_ns as f64 * dilation) as u64;
        let overhead = 1.0 - device_ns as f64 / request_ns.max(1) as f64;
        Ok(Calibration { dilation, export_ns, request_ns, device_ns, overhead: overhead.max(0.0) })
    };
    if let Some(dilation) = wanted {
        return at(dilation);
    }
    let mut others_ns = export_ns;
    let mut tried = None;
    for _ in 0..TRIES {
        // A fifth more, because it is measured again and may come out a little worse.
        let dilation = others_ns as f64 * (1.0 / OVERHEAD_MAX - 1.0) / undilated_ns.max(1) as f64 * 1.2;
        let now = at(dilation.ceil().clamp(1.0, DILATION_MAX))?;
        tried = Some(now);
        if now.overhead < OVERHEAD_MAX || now.dilation >= DILATION_MAX {
            break;
        }
        // Sleeping and being woken costs more than a request that is answered at once.
        others_ns = now.request_ns.saturating_sub(now.device_ns).max(others_ns);
    }
    tried.context("no dilation was tried")
}

/// The median time that the device itself takes for a request, ns, in virtual time: the same on every
/// machine.
fn device_time(ssds: &Ssds<'_>) -> Result<u64> {
    let mut profile = contestant::profile(ssds.profile)?;
    profile.firmware.kind = Firmware::PageCache;
    let size = ssds.size;
    amphi_rt::Sim::new(1).run(move || -> Result<u64> {
        let ssd = Ssd::try_in_memory(&profile, size, &OpenOptions::default())?;
        let timed = |request: u64| -> Result<u64> {
            let begin = time::now_ns();
            ssd.write(Lpa(place(request) / 4096), &[0x5a; 4096], Structure::Other)?;
            ssd.flush()?;
            Ok(time::now_ns() - begin)
        };
        median((0..REQUESTS).map(timed).collect::<Result<_>>()?)
    })
}

/// Where a request writes: no two neighbours one after the other.
const fn place(request: u64) -> u64 {
    request * 797 % 1024 * 4096
}

fn median(mut samples: Vec<u64>) -> Result<u64> {
    samples.sort_unstable();
    samples.get(samples.len() / 2).copied().context("nothing was timed")
}

/// The median time of a request through the export, ns.
fn time_requests(workspace: &Workspace, amphi: &Path, ssds: &Ssds<'_>) -> Result<u64> {
    let mkfs =
        [profile_options(ssds), ["--fs", "none", "--firmware", "page-cache"].map(str::to_owned).to_vec()]
            .concat();
    let mkfs: Vec<&str> = mkfs.iter().map(String::as_str).collect();
    let speed = speed(ssds);
    let speed: Vec<&str> = speed.iter().map(String::as_str).collect();
    // A name is used once in a workspace.
    let name = format!("calibration-{}", ssds.dilation.unwrap_or(0.0));
    let service = Service { name: &name, verb: "export", mkfs: &mkfs, options: &speed };
    let served = Served::new(workspace, amphi, &service)?;
    let attached = Attached::new(&served.directory().join("ssd"))?;
    let flags = OFlags::DIRECT.bits() as i32;
    let device = File::options()
        .read(true)
        .write(true)
        .custom_flags(flags)
        .open(attached.path())
        .with_context(|| format!("{} cannot be opened", attached.path()))?;
    let page = Box::new(Page([0x5a; 4096]));
    let timed = |request: u64| -> Result<u64> {
        let begin = time::now_ns();
        device.write_all_at(&page.0, place(request))?;
        device.sync_data()?;
        Ok(time::now_ns() - begin)
    };
    median((0..REQUESTS).map(timed).collect::<Result<_>>()?)
}

/// Where direct I/O can take it from.
#[repr(align(4096))]
struct Page([u8; 4096]);
