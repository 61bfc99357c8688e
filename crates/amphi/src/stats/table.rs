//! The counters as a page of text.

use amphi_device::Structure;
use serde_json::Value;

use super::sample::{CAUSES, PATHS, Sample, count, duration, sum};
use crate::target::Target;
use amphi_volume::size::shown;

/// Prints everything once.
pub fn print(target: &Target, Sample { device: counters, filesystem, .. }: &Sample) {
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
    let wear = ["min", "max"].map(|end| count(&counters[format!("erase_count_{end}")]));
    println!(
        "blocks erased {} to {} times, {:.1} on average; queue {} deep, at most {}",
        wear[0],
        wear[1],
        counters["erase_count_mean"].as_f64().unwrap_or(0.0),
        count(&counters["queue"]["depth"]),
        count(&counters["queue"]["depth_max"]),
    );
    println!(
        "log {} of {}, {} commits, {} cleanings, {} recoveries, {} blocks erased",
        shown(count(&counters["log_used"])),
        shown(count(&counters["log_capacity"])),
        count(&counters["commits"]),
        count(&counters["log_cleanings"]),
        count(&counters["recoveries"]),
        count(&counters["blocks_erased"]),
    );
    let memory = ["memory_used", "memory_capacity"].map(|name| count(&counters[name]));
    let pins = count(&counters["pin_capacity"]);
    if pins > 0 {
        println!(
            "BA-buffer: {} of {pins} entries, {} pins, {} flushes, {} syncs, {} block commands refused",
            count(&counters["pinned_entries"]),
            count(&counters["pins"]),
            count(&counters["entry_flushes"]),
            count(&counters["entry_syncs"]),
            count(&counters["block_commands_gated"]),
        );
    } else if memory[1] > 0 {
        println!("memory area {} of {} ever stored to", shown(memory[0]), shown(memory[1]));
    }
    print_filesystem(filesystem);
    print_latencies(counters);
}

/// What a file system counts itself, by name, and of each structure that it has in memory.
fn print_filesystem(filesystem: &Value) {
    let Some(fields) = filesystem.as_object() else { return };
    println!("\nfile system");
    let words = |name: &str| name.replace('_', " ");
    for (name, value) in fields {
        match value.as_object() {
            Some(parts) => {
                let parts: Vec<_> = parts
                    .iter()
                    .map(|(part, bytes)| format!("{} {}", words(part), shown(count(bytes))))
                    .collect();
                println!("{:<20}{}", words(name), parts.join(", "));
            }
            None => println!("{:<20}{:>14}", words(name), count(value)),
        }
    }
}

/// What took how long since the device was powered up; nothing where no time passes.
fn print_latencies(counters: &Value) {
    let commands = rows(counters, "latencies", ["command", "structure"]);
    let flash = rows(counters, "flash_latencies", ["operation", "cause"]);
    if commands.is_empty() {
        return;
    }
    println!(
        "\n{:<30}{:>10}{:>11}{:>11}{:>11}{:>11}",
        "device time of commands", "count", "median", "90 %", "99 %", "longest"
    );
    commands.iter().for_each(|row| println!("{row}"));
    println!("\ntime of flash operations");
    flash.iter().for_each(|row| println!("{row}"));
}

fn rows(counters: &Value, list: &str, name: [&str; 2]) -> Vec<String> {
    let row = |latency: &Value| {
        let words = name.map(|part| latency[part].as_str().unwrap_or_default());
        let path = latency["path"].as_str().unwrap_or("flash");
        let device = &latency["device"];
        let times = ["p50_ns", "p90_ns", "p99_ns", "max_ns"].map(|field| duration(count(&device[field])));
        let title = format!("{path} {} {}", words[0], words[1]);
        format!(
            "{title:<30}{:>10}{:>11}{:>11}{:>11}{:>11}",
            count(&device["count"]),
            times[0],
            times[1],
            times[2],
            times[3]
        )
    };
    counters[list].as_array().into_iter().flatten().map(row).collect()
}
