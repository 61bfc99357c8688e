//! `amphi stats`: what travelled to the device and to its flash, how long it took, once or as a live view.

mod lines;
mod live;
pub mod metrics;
mod sample;
mod table;

use std::io::IsTerminal;
use std::path::PathBuf;

use amphi_ssd::Ssd;
use anyhow::Result;
use serde_json::{Value, json};

use crate::control::Request;
use crate::target::Target;
use sample::Sample;

/// Shows the device's counters.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  amphi stats ssd.img
  amphi stats /mnt --json
  amphi stats /mnt --watch                             q ends it
  amphi stats /mnt --watch --interval 0.2 > log.txt    a line each time, where there is no terminal")]
pub struct Options {
    /// An image, or the directory where one is mounted.
    path: PathBuf,
    /// One JSON object, described in docs/stats.md; with --watch, one on each line.
    #[arg(long)]
    json: bool,
    /// Show what happens until q or Ctrl-C: a live view on a terminal, else lines.
    #[arg(long)]
    watch: bool,
    /// Seconds between two looks with --watch.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = interval, requires = "watch")]
    interval: f64,
    /// Looks with --watch; without it there is no end.
    #[arg(long, value_name = "N", requires = "watch")]
    count: Option<u64>,
}

/// Version of the object that `--json` prints: another number if a field goes away or changes its meaning.
const SCHEMA: u64 = 1;

pub fn run(options: &Options) -> Result<()> {
    if !options.watch {
        let (target, sample) = look(options)?;
        if options.json {
            println!("{}", document(&target, &sample.device));
        } else {
            table::print(&target, &sample.device);
        }
        return Ok(());
    }
    if options.json || !std::io::stdout().is_terminal() {
        return lines::run(options);
    }
    live::run(options)
}

/// Looks at the counters.
fn look(options: &Options) -> Result<(Target, Sample)> {
    let target = Target::find(&options.path)?;
    let device = match target.ask(&Request::Stats)? {
        Some(mut daemon) => daemon.answer()?,
        None => serde_json::to_value(Ssd::inspect(&target.image)?.1)?,
    };
    Ok((target, Sample { at_ns: amphi_rt::time::now_ns(), device }))
}

/// What `--json` prints.
fn document(target: &Target, device: &Value) -> Value {
    json!({ "schema": SCHEMA, "image": target.image, "mounted_at": target.mounted_at, "device": device })
}

fn interval(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.01..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("a number of seconds from 0.01 to 86400 is needed".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use amphi_device::{BlockPort, BytePortExt, Lpa, Structure};
    use amphi_ssd::Profile;

    use super::*;
    use crate::documented_fields;

    #[test]
    fn every_field_is_documented_and_every_documented_field_is_there() {
        let device = amphi_rt::Sim::new(1).run(|| {
            let ssd = Ssd::in_memory(&Profile::named("mssd-pcie3").expect("built in"), 16 << 20);
            ssd.write(Lpa(1), &[1; 4096], Structure::Data).expect("writes");
            ssd.persist(0, &[1; 64], None, Structure::Inode).expect("persists");
            serde_json::to_value(ssd.stats()).expect("JSON")
        });
        let target = Target { image: "/ssd.img".into(), mounted_at: None };
        documented_fields::compare(&document(&target, &device), include_str!("../../../../docs/stats.md"));
        assert_eq!(document(&target, &device)["schema"], SCHEMA);
    }

    #[test]
    fn intervals_have_a_range() {
        assert_eq!(interval("0.5"), Ok(0.5));
        for bad in ["0", "-1", "NaN", "x", "1e9"] {
            assert!(interval(bad).is_err(), "{bad}");
        }
    }
}
