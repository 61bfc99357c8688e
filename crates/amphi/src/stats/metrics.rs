//! The counters as Prometheus reads them: text format 0.0.4. Times are in seconds, sizes in bytes.

use std::fmt::Write;

use amphi_ssd::{FlashTraffic, Latency, PathTraffic, Stats};

/// The whole page.
pub fn text(stats: &Stats) -> String {
    let mut page = Page(String::new());
    let paths: [(&str, &str, &PathTraffic); 4] = [
        ("byte", "read", &stats.byte_read),
        ("byte", "write", &stats.byte_write),
        ("block", "read", &stats.block_read),
        ("block", "write", &stats.block_write),
    ];
    let traffic = || {
        paths.iter().flat_map(|(path, direction, traffic)| {
            traffic.structures.iter().map(move |of| {
                (format!("path=\"{path}\",direction=\"{direction}\",structure=\"{}\"", of.structure), of)
            })
        })
    };
    page.head("amphi_host_commands_total", "counter", "Transfers between host and SSD.");
    traffic().for_each(|(labels, of)| page.line("amphi_host_commands_total", &labels, of.commands));
    page.head("amphi_host_bytes_total", "counter", "Bytes between host and SSD.");
    traffic().for_each(|(labels, of)| page.line("amphi_host_bytes_total", &labels, of.bytes));
    let causes: [(&str, FlashTraffic); 5] = [
        ("host", stats.flash_host),
        ("log-cleaning", stats.flash_log_cleaning),
        ("garbage-collection", stats.flash_garbage_collection),
        ("recovery", stats.flash_recovery),
        ("mapping", stats.flash_mapping),
    ];
    page.head("amphi_flash_pages_total", "counter", "Flash pages of 4 KiB read and programmed.");
    for (cause, pages) in causes {
        for (operation, pages) in [("read", pages.pages_read), ("program", pages.pages_written)] {
            let labels = format!("operation=\"{operation}\",cause=\"{cause}\"");
            page.line("amphi_flash_pages_total", &labels, pages);
        }
    }
    for (name, help, value) in [
        ("amphi_blocks_erased_total", "Erase blocks erased.", stats.blocks_erased),
        ("amphi_garbage_collections_total", "Blocks that garbage collection emptied.", stats.gc_runs),
        (
            "amphi_foreground_collections_total",
            "Writes that waited for garbage collection.",
            stats.gc_foreground_runs,
        ),
        ("amphi_pages_trimmed_total", "Pages the host trimmed.", stats.pages_trimmed),
        ("amphi_commits_total", "COMMIT commands.", stats.commits),
        ("amphi_verify_reads_total", "Write-verify reads.", stats.verify_reads),
        ("amphi_log_entries_total", "Entries appended to the write log.", stats.log_entries),
        ("amphi_log_bytes_total", "Bytes appended to the write log.", stats.log_bytes),
        ("amphi_log_cleanings_total", "Log regions cleaned.", stats.log_cleanings),
        ("amphi_recoveries_total", "RECOVER commands.", stats.recoveries),
        ("amphi_power_cuts_total", "Power losses.", stats.power_cuts),
        ("amphi_host_crashes_total", "Host crashes.", stats.host_crashes),
        ("amphi_pins_total", "Entries pinned onto the BA-buffer.", stats.pins),
        ("amphi_entry_flushes_total", "Entries of the BA-buffer flushed.", stats.entry_flushes),
        ("amphi_entry_syncs_total", "Entries of the BA-buffer synced.", stats.entry_syncs),
        (
            "amphi_block_commands_gated_total",
            "Block commands refused because of a pin.",
            stats.block_commands_gated,
        ),
        ("amphi_dumps_total", "Dumps of the BA-buffer at a power loss.", stats.dumps),
        ("amphi_restores_total", "Restores of the BA-buffer.", stats.restores),
    ] {
        page.single(name, "counter", help, value);
    }
    for (name, help, value) in [
        ("amphi_log_used_bytes", "Bytes in the log region that takes appends.", stats.log_used),
        ("amphi_log_cleaning_bytes", "Bytes in the log region being cleaned.", stats.log_cleaning_used),
        ("amphi_log_capacity_bytes", "Bytes of one log region.", stats.log_capacity),
        ("amphi_log_index_bytes", "Memory of the log's index.", stats.index_bytes),
        ("amphi_transaction_log_entries", "Slots of the transaction log in use.", stats.txlog_used),
        ("amphi_memory_used_bytes", "Bytes of the memory area that were ever stored to.", stats.memory_used),
        ("amphi_memory_capacity_bytes", "Bytes of the memory area.", stats.memory_capacity),
        ("amphi_pinned_entries", "Entries of the BA-buffer in use.", stats.pinned_entries),
        ("amphi_pin_capacity_entries", "Entries that the BA-buffer has room for.", stats.pin_capacity),
        ("amphi_queue_depth", "Block commands in flight.", stats.queue.depth),
    ] {
        page.single(name, "gauge", help, value);
    }
    let since = stats.uptime_ns as f64 / 1e9;
    page.single("amphi_uptime_seconds", "gauge", "Time since the SSD was powered up.", since);
    let amplification = stats.write_amplification;
    page.single("amphi_write_amplification", "gauge", "Flash bytes per host byte written.", amplification);
    page.head("amphi_erase_count", "gauge", "Erases of one block: fewest, mean and most.");
    page.line("amphi_erase_count", "of=\"min\"", stats.erase_count_min);
    page.line("amphi_erase_count", "of=\"mean\"", stats.erase_count_mean);
    page.line("amphi_erase_count", "of=\"max\"", stats.erase_count_max);
    page.head(
        "amphi_activity_running",
        "gauge",
        "What the firmware does now, and commands that wait for it.",
    );
    for activity in &stats.activities {
        let labels = format!("activity=\"{}\"", activity.activity);
        page.line("amphi_activity_running", &labels, activity.running);
    }
    page.histograms(stats);
    page.0
}

struct Page(String);

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn line(&mut self, name: &str, labels: &str, value: impl std::fmt::Display) {
        let _ = writeln!(self.0, "{name}{{{labels}}} {value}");
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: impl std::fmt::Display) {
        self.head(name, kind, help);
        let _ = writeln!(self.0, "{name} {value}");
    }

    fn histograms(&mut self, stats: &Stats) {
        let commands = || {
            stats.latencies.iter().map(|of| {
                let structure = of.structure.unwrap_or("several");
                (format!("path=\"{}\",command=\"{}\",structure=\"{structure}\"", of.path, of.command), of)
            })
        };
        let name = "amphi_command_device_seconds";
        self.head(name, "histogram", "From submission to completion, by the SSD's time.");
        commands().for_each(|(labels, of)| self.histogram(name, &labels, &of.device));
        let name = "amphi_command_wait_seconds";
        self.head(name, "histogram", "As long as the host was held.");
        commands().for_each(|(labels, of)| self.histogram(name, &labels, &of.wait));
        let name = "amphi_flash_operation_seconds";
        self.head(name, "histogram", "Flash operations, queueing included.");
        for of in &stats.flash_latencies {
            let labels = format!("operation=\"{}\",cause=\"{}\"", of.operation, of.cause);
            self.histogram(name, &labels, &of.device);
        }
        let name = "amphi_activity_seconds";
        self.head(name, "histogram", "What the firmware did, and how long commands waited for it.");
        for of in &stats.activities {
            self.histogram(name, &format!("activity=\"{}\"", of.activity), &of.duration);
        }
    }

    /// Cumulative counts up to each power of two from 128 ns to 17 s. The finer buckets end just below these,
    /// so nothing is split.
    fn histogram(&mut self, name: &str, labels: &str, latency: &Latency) {
        for shift in 7..=34 {
            let end_ns = 1_u64 << shift;
            let up_to = latency.buckets.iter().filter(|bucket| bucket.up_to_ns < end_ns);
            let count: u64 = up_to.map(|bucket| bucket.count).sum();
            let end = end_ns as f64 / 1e9;
            self.line(&format!("{name}_bucket"), &format!("{labels},le=\"{end}\""), count);
        }
        self.line(&format!("{name}_bucket"), &format!("{labels},le=\"+Inf\""), latency.count);
        self.line(&format!("{name}_sum"), labels, latency.sum_ns as f64 / 1e9);
        self.line(&format!("{name}_count"), labels, latency.count);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use amphi_device::{BlockPort, BytePortExt, Lpa, Structure};
    use amphi_ssd::{Profile, Ssd};

    use super::*;

    fn page() -> String {
        amphi_rt::Sim::new(1).run(|| {
            let ssd = Ssd::in_memory(&Profile::named("mssd-pcie3").expect("built in"), 16 << 20);
            for lpa in 0..10 {
                ssd.write(Lpa(lpa), &[1; 4096], Structure::Data).expect("writes");
            }
            ssd.persist(0, &[1; 64], None, Structure::Inode).expect("persists");
            text(&ssd.stats())
        })
    }

    #[test]
    fn the_page_is_what_the_text_format_demands() {
        let page = page();
        assert!(page.ends_with('\n'));
        let mut types: BTreeMap<&str, &str> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for line in page.lines() {
            if let Some(comment) = line.strip_prefix("# ") {
                let words: Vec<_> = comment.splitn(3, ' ').collect();
                assert!(words[0] == "HELP" || words[0] == "TYPE", "{line}");
                if words[0] == "TYPE" {
                    assert!(["counter", "gauge", "histogram"].contains(&words[2]), "{line}");
                    assert!(types.insert(words[1], words[2]).is_none(), "declared twice: {line}");
                }
                continue;
            }
            let (series, value) = line.rsplit_once(' ').expect("a value");
            value.parse::<f64>().unwrap_or_else(|_| panic!("no number: {line}"));
            assert!(seen.insert(series), "twice: {line}");
            let name = series.split('{').next().expect("a name");
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            let kind = types.get(name).or_else(|| base.and_then(|base| types.get(base)));
            let kind = kind.unwrap_or_else(|| panic!("declared nowhere before: {line}"));
            assert!(*kind != "counter" || name.ends_with("_total"), "{line}");
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{line}");
            if let Some((_, labels)) = series.split_once('{') {
                let labels = labels.strip_suffix('}').expect("closed labels");
                assert!(labels.split("\",").all(|label| label.contains("=\"")), "{line}");
            }
        }
    }

    #[test]
    fn counters_and_histograms_carry_their_values() {
        let page = page();
        let value = |series: &str| -> f64 {
            let line = page.lines().find(|line| line.starts_with(&format!("{series} ")));
            line.unwrap_or_else(|| panic!("no {series}"))
                .rsplit_once(' ')
                .expect("a value")
                .1
                .parse()
                .expect("a number")
        };
        let data = "path=\"block\",direction=\"write\",structure=\"data\"";
        assert_eq!(value(&format!("amphi_host_bytes_total{{{data}}}")), 40_960.0);
        assert_eq!(value("amphi_queue_depth"), 0.0);
        let write = "path=\"block\",command=\"write\",structure=\"data\"";
        let name = "amphi_command_device_seconds";
        assert_eq!(value(&format!("{name}_count{{{write}}}")), 10.0);
        assert_eq!(value(&format!("{name}_bucket{{{write},le=\"+Inf\"}}")), 10.0);
        assert_eq!(value(&format!("{name}_bucket{{{write},le=\"0.000000128\"}}")), 0.0);
        let buckets: Vec<f64> = page
            .lines()
            .filter(|line| line.starts_with(&format!("{name}_bucket{{{write}")))
            .map(|line| line.rsplit_once(' ').expect("a value").1.parse().expect("a number"))
            .collect();
        assert!(buckets.len() == 29 && buckets.is_sorted() && buckets.last() == Some(&10.0), "{buckets:?}");
    }
}
