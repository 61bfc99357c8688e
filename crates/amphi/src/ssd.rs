//! `amphi ssd`: the profiles of emulated SSDs, and how far the emulator is from what was published about
//! them.

use std::process::ExitCode;

use amphi_ssd::{Calibration, Profile, RealTime, calibrate, real_time};
use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::device;

/// How far a measured point may be from the published one.
const TOLERANCE: f64 = 0.05;

/// Profiles of emulated SSDs.
#[derive(clap::Args)]
pub struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    Profiles(Profiles),
    Calibrate(Calibrate),
}

/// Lists the built-in profiles.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  amphi ssd profiles\n  amphi mkfs ssd.img --profile mssd-cxl")]
struct Profiles {
    /// One JSON object: profiles.
    #[arg(long)]
    json: bool,
}

/// Measures the emulator beside what was published about the device.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  amphi ssd calibrate                  every built-in profile
  amphi ssd calibrate 2b-ssd --json
  amphi ssd calibrate --real           how well this machine keeps real time

Exits 1 if a point is more than 5 % off and its profile does not say why, or if real time is not kept.")]
struct Calibrate {
    /// A built-in profile's name, or a TOML file; all built-in ones if none is given.
    profile: Option<String>,
    /// One JSON object: tolerance, profiles; or real_time.
    #[arg(long)]
    json: bool,
    /// Time commands in real time instead: the median of 5 us ones within 10 %, of 100 us ones within 3 %.
    #[arg(long, conflicts_with = "profile")]
    real: bool,
}

/// Runs the subcommand.
///
/// # Errors
/// The profile cannot be used.
pub fn run(options: &Options) -> Result<ExitCode> {
    match &options.command {
        Command::Profiles(options) => {
            list(options.json)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Calibrate(options) if options.real => keep_time(options.json),
        Command::Calibrate(options) => measure(options),
    }
}

fn list(as_json: bool) -> Result<()> {
    let mut profiles = Vec::new();
    for name in Profile::names() {
        let profile = Profile::named(name)?;
        if as_json {
            let points = profile.published.len();
            profiles.push(json!({ "name": name, "description": profile.description, "published": points }));
        } else {
            println!("{name:<12} {}", profile.description);
        }
    }
    if as_json {
        println!("{}", json!({ "profiles": profiles }));
    }
    Ok(())
}

fn measure(options: &Calibrate) -> Result<ExitCode> {
    let profiles = match &options.profile {
        Some(name) => vec![device::profile(name)?],
        None => Profile::names().map(Profile::named).collect::<Result<_, _>>()?,
    };
    let mut all_met = true;
    let mut reports = Vec::new();
    for profile in &profiles {
        let points =
            calibrate(profile).with_context(|| format!("the profile {} cannot be measured", profile.name))?;
        all_met &= points.iter().all(|point| point.is_met(TOLERANCE) || point.unmet.is_some());
        if options.json {
            reports.push(json!({ "profile": profile.name, "points": points }));
        } else {
            print_points(profile, &points);
        }
    }
    if options.json {
        println!("{}", json!({ "tolerance": TOLERANCE, "profiles": reports }));
    }
    Ok(if all_met { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print_points(profile: &Profile, points: &[Calibration]) {
    println!("{}: {}", profile.name, profile.description);
    if points.is_empty() {
        println!("  nothing published to measure");
    }
    for point in points {
        let verdict = match (point.error(), &point.unmet) {
            (Some(error), None) if error.abs() <= TOLERANCE => format!("{:+.1} %", error * 100.0),
            (Some(error), None) => format!("{:+.1} %, NOT MET", error * 100.0),
            (Some(error), Some(reason)) => format!("{:+.1} %: {reason}", error * 100.0),
            (None, reason) => reason.clone().unwrap_or_default(),
        };
        let measured = point.measured.map_or_else(|| "-".to_owned(), |measured| format!("{measured:.3}"));
        println!(
            "  {:<29} {measured:>9} beside {:>8.3} {:<5} {verdict}  [{}]",
            point.name, point.published, point.unit, point.source
        );
    }
}

fn keep_time(as_json: bool) -> Result<ExitCode> {
    let times = real_time()?;
    if as_json {
        let shown: Vec<Value> = times.iter().map(|time| json!(time)).collect();
        println!("{}", json!({ "real_time": shown }));
    } else {
        for time in &times {
            println!(
                "{:>6} ns: median {} ns ({:+.2} %, at most {:.0} %), 99 % within {} ns, {} rounds",
                time.device_ns,
                time.median_ns,
                time.error() * 100.0,
                time.tolerance * 100.0,
                time.p99_ns,
                time.rounds
            );
        }
    }
    Ok(if times.iter().all(RealTime::is_kept) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
