//! `amphi stats`: what travelled to the device and to its flash, once or as a live view.

use std::path::PathBuf;

use amphi_device::Structure;
use amphi_ssd::Ssd;
use anyhow::Result;
use serde_json::{Value, json};

use crate::control::Request;
use crate::size::shown;
use crate::target::Target;

/// Shows the device's counters.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  amphi stats ssd.img\n  amphi stats /mnt --json\n  amphi stats /mnt --watch"
)]
pub struct Options {
    /// An image, or the directory where one is mounted.
    path: PathBuf,
    /// One JSON object: image, mounted_at, device (the counters).
    #[arg(long)]
    json: bool,
    /// Redraw every second until Ctrl-C.
    #[arg(long)]
    watch: bool,
}

pub fn run(options: &Options) -> Result<()> {
    loop {
        let target = Target::find(&options.path)?;
        let counters = counters(&target)?;
        if options.watch && !options.json {
            // Home and clear, as `watch` does.
            print!("\x1b[H\x1b[2J");
        }
        if options.json {
            println!(
                "{}",
                json!({ "image": target.image, "mounted_at": target.mounted_at, "device": counters })
            );
        } else {
            print_table(&target, &counters);
        }
        if !options.watch {
            return Ok(());
        }
        amphi_rt::time::sleep_ns(1_000_000_000);
    }
}

fn counters(target: &Target) -> Result<Value> {
    match target.ask(&Request::Stats)? {
        Some(mut daemon) => daemon.answer(),
        None => Ok(serde_json::to_value(Ssd::inspect(&target.image)?.1)?),
    }
}

/// The four ways between host and device, by the names of their counters and of their columns.
const PATHS: [(&str, &str); 4] = [
    ("byte_write", "byte writes"),
    ("block_write", "block writes"),
    ("byte_read", "byte reads"),
    ("block_read", "block reads"),
];

/// Why flash is touched.
const CAUSES: [(&str, &str); 4] = [
    ("flash_host", "host"),
    ("flash_log_cleaning", "log cleaning"),
    ("flash_garbage_collection", "garbage collection"),
    ("flash_recovery", "recovery"),
];

fn print_table(target: &Target, counters: &Value) {
    match &target.mounted_at {
        Some(directory) => println!("{} mounted at {}", target.image.display(), directory.display()),
        None => println!("{}", target.image.display()),
    }
    println!("\n{:<16}{}", "host and SSD", PATHS.map(|(_, title)| format!("{title:>14}")).concat());
    for index in 0..Structure::ALL.len() {
        let bytes = PATHS.map(|(path, _)| count(&counters[path]["structures"][index]["bytes"]));
        if bytes.iter().any(|&bytes| bytes > 0) {
            println!(
                "{:<16}{}",
                Structure::ALL[index].name(),
                bytes.map(|bytes| format!("{:>14}", shown(bytes))).concat()
            );
        }
    }
    println!(
        "{:<16}{}",
        "all",
        PATHS.map(|(path, _)| format!("{:>14}", shown(sum(&counters[path], "bytes")))).concat()
    );
    println!(
        "{:<16}{}",
        "commands",
        PATHS.map(|(path, _)| format!("{:>14}", sum(&counters[path], "commands"))).concat()
    );

    println!("\n{:<20}{:>14}{:>14}", "flash pages", "written", "read");
    for (cause, title) in CAUSES {
        let pages = &counters[cause];
        println!("{title:<20}{:>14}{:>14}", count(&pages["pages_written"]), count(&pages["pages_read"]));
    }
    println!("\nwrite amplification {:.2}", counters["write_amplification"].as_f64().unwrap_or(0.0));
    println!(
        "log {} of {}, {} commits, {} cleanings, {} recoveries, {} blocks erased",
        shown(count(&counters["log_used"])),
        shown(count(&counters["log_capacity"])),
        count(&counters["commits"]),
        count(&counters["log_cleanings"]),
        count(&counters["recoveries"]),
        count(&counters["blocks_erased"]),
    );
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// One field over all structures of a path.
fn sum(path: &Value, field: &str) -> u64 {
    path["structures"].as_array().into_iter().flatten().map(|structure| count(&structure[field])).sum()
}
