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
            println!("{}", document(&target, &sample));
        } else {
            table::print(&target, &sample);
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
    let (device, filesystem) = match target.ask(&Request::Stats)? {
        Some(mut daemon) => {
            let mut answer: Value = daemon.answer()?;
            (answer["device"].take(), answer["filesystem"].take())
        }
        None => (serde_json::to_value(Ssd::inspect(&target.image)?.1)?, Value::Null),
    };
    Ok((target, Sample { at_ns: amphi_rt::time::now_ns(), device, filesystem }))
}

/// What `--json` prints.
fn document(target: &Target, Sample { device, filesystem, .. }: &Sample) -> Value {
    let (image, mounted_at) = (&target.image, &target.mounted_at);
    json!({
        "schema": SCHEMA, "image": image, "mounted_at": mounted_at, "device": device, "filesystem": filesystem,
    })
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
    use std::sync::Arc;

    use amphi_ssd::{Firmware, Profile};
    use amphi_volume::{FormatOptions, MountOptions, Volume};
    use amphi_volumes::{Act, Kind};
    use serde_json::Map;

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
        let filesystem = Kind::named("devfs").expect("it is in the list").with(Mounted(device_inside()));
        let target = Target { image: "/ssd.img".into(), mounted_at: None };
        let document = document(&target, &Sample { at_ns: 0, device, filesystem: Value::Object(filesystem) });
        documented_fields::compare(&document, include_str!("../../../../docs/stats.md"));
        assert_eq!(document["schema"], SCHEMA);
    }

    /// An SSD whose firmware is the file system.
    fn device_inside() -> Arc<Ssd> {
        let mut profile = Profile::named("free").expect("built in");
        profile.firmware.kind = Firmware::FileSystem;
        profile.firmware.memory_bytes = 4 << 20;
        profile.log.region_bytes = 4 << 20;
        Arc::new(Ssd::in_memory(&profile, 64 << 20))
    }

    /// What a file system of the list says of itself while it is mounted.
    struct Mounted(Arc<Ssd>);

    impl Act<Ssd> for Mounted {
        type Out = Map<String, Value>;

        fn on<V: Volume<Ssd>>(self) -> Self::Out {
            V::format(&self.0, &FormatOptions::default()).expect("it can be made");
            let mounted = V::mount(&self.0, &MountOptions::default()).expect("it can be mounted");
            let stats = mounted.stats();
            mounted.unmount().expect("it is idle");
            stats
        }
    }

    #[test]
    fn intervals_have_a_range() {
        assert_eq!(interval("0.5"), Ok(0.5));
        for bad in ["0", "-1", "NaN", "x", "1e9"] {
            assert!(interval(bad).is_err(), "{bad}");
        }
    }
}
