//! Two looks at the counters, and what happened between them.

use amphi_ssd::{Bucket, Latency};
use serde_json::Value;

/// The four ways between host and device, by the names of their counters and of their columns.
pub const PATHS: [(&str, &str); 4] = [
    ("byte_write", "byte writes"),
    ("block_write", "block writes"),
    ("byte_read", "byte reads"),
    ("block_read", "block reads"),
];

/// Why flash is touched.
pub const CAUSES: [(&str, &str); 5] = [
    ("flash_host", "host"),
    ("flash_log_cleaning", "log cleaning"),
    ("flash_garbage_collection", "garbage collection"),
    ("flash_recovery", "recovery"),
    ("flash_mapping", "mapping"),
];

/// A number of the counters; 0 if it is not there.
pub fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// One field over all structures of a path.
pub fn sum(path: &Value, field: &str) -> u64 {
    path["structures"].as_array().into_iter().flatten().map(|structure| count(&structure[field])).sum()
}

/// A duration with three digits and a unit.
pub fn duration(ns: u64) -> String {
    let (value, unit) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (ns as f64 / 1e3, "µs"),
        1_000_000..1_000_000_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    let decimals = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.decimals$} {unit}")
}

/// The counters at one moment.
#[derive(Clone, Debug)]
pub struct Sample {
    /// When, in ns of this process's clock.
    pub at_ns: u64,
    /// The device's counters.
    pub device: Value,
    /// The file system's own; null where it has none, or is not mounted.
    pub filesystem: Value,
}

/// What happened between two samples.
#[derive(Clone, Debug)]
pub struct Interval {
    /// How long it was.
    pub seconds: f64,
    /// Bytes per second on each of [`PATHS`].
    pub rates: [f64; 4],
    /// Bytes per second programmed to flash.
    pub flash_rate: f64,
    /// Flash bytes written per host byte written; none if the host wrote nothing.
    pub amplification: Option<f64>,
    /// The share of the active log region in use, 0 to 1.
    pub log_fill: f64,
    /// Mean depth of the block queue as its commands found it; 0 without commands.
    pub depth: f64,
    /// Log cleanings, garbage collections and commits per second.
    pub cleanings: f64,
    /// Blocks that garbage collection emptied, per second.
    pub collections: f64,
    /// Commits per second.
    pub commits: f64,
    /// Commands and how long they took.
    pub latencies: Vec<Row>,
}

/// One kind of command in an interval.
#[derive(Clone, Debug)]
pub struct Row {
    /// Path, command and structure.
    pub title: String,
    /// Device time.
    pub device: Latency,
    /// How long the host was held.
    pub wait: Latency,
}

impl Interval {
    /// What happened between two samples of one device.
    pub fn between(before: &Sample, after: &Sample) -> Self {
        let seconds = (after.at_ns.saturating_sub(before.at_ns) as f64 / 1e9).max(1e-9);
        let (old, new) = (&before.device, &after.device);
        let since = |of: &dyn Fn(&Value) -> u64| of(new).saturating_sub(of(old));
        let field = |name: &str| since(&|device| count(&device[name]));
        let bytes = PATHS.map(|(path, _)| since(&|device| sum(&device[path], "bytes")));
        let flash = field("flash_bytes_written");
        let written = bytes[0] + bytes[1];
        let submitted = since(&|device| count(&device["queue"]["submitted"]));
        let depths = since(&|device| count(&device["queue"]["depth_sum"]));
        let per_second = |events: u64| events as f64 / seconds;
        Self {
            seconds,
            rates: bytes.map(per_second),
            flash_rate: per_second(flash),
            amplification: (written > 0).then(|| flash as f64 / written as f64),
            log_fill: count(&new["log_used"]) as f64 / count(&new["log_capacity"]).max(1) as f64,
            depth: if submitted == 0 { 0.0 } else { depths as f64 / submitted as f64 },
            cleanings: per_second(field("log_cleanings")),
            collections: per_second(field("gc_runs")),
            commits: per_second(field("commits")),
            latencies: latencies(old, new),
        }
    }

    /// Bytes per second that the host wrote.
    pub fn host_writes(&self) -> f64 {
        self.rates[0] + self.rates[1]
    }
}

fn latencies(old: &Value, new: &Value) -> Vec<Row> {
    let list = |device: &Value| device["latencies"].as_array().cloned().unwrap_or_default();
    let title = |entry: &Value| {
        ["path", "command", "structure"].map(|part| entry[part].as_str().unwrap_or_default()).join(" ")
    };
    let before = list(old);
    let row = |entry: &Value| {
        let title = title(entry).trim_end().to_owned();
        let same = |key: &str| {
            let same =
                |old: &&Value| ["path", "command", "structure"].iter().all(|part| old[part] == entry[part]);
            before.iter().find(same).map(|old| &old[key])
        };
        Row {
            device: grown(same("device"), &entry["device"]),
            wait: grown(same("wait"), &entry["wait"]),
            title,
        }
    };
    list(new).iter().map(row).collect()
}

/// What was added to a histogram; all of it if the device was powered up in between.
fn grown(old: Option<&Value>, new: &Value) -> Latency {
    let pairs = |latency: &Value| -> Vec<(u64, u64)> {
        let buckets = latency["buckets"].as_array().into_iter().flatten();
        buckets.map(|bucket| (count(&bucket[0]), count(&bucket[1]))).collect()
    };
    let old = old.filter(|old| count(&old["count"]) <= count(&new["count"]));
    let before = old.map(pairs).unwrap_or_default();
    let buckets = pairs(new)
        .into_iter()
        .map(|(up_to_ns, now)| {
            let then = before.iter().find(|(end, _)| *end == up_to_ns).map_or(0, |(_, count)| *count);
            Bucket { up_to_ns, count: now.saturating_sub(then) }
        })
        .filter(|bucket| bucket.count > 0)
        .collect();
    let sum = count(&new["sum_ns"]).saturating_sub(old.map_or(0, |old| count(&old["sum_ns"])));
    Latency::new(sum, buckets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sample(seconds: u64, scale: u64) -> Sample {
        let path = |bytes: u64| json!({ "structures": [{ "structure": "inode", "commands": 1, "bytes": bytes * scale }] });
        let device = json!({
            "byte_write": path(1000), "block_write": path(3000), "byte_read": path(50), "block_read": path(0),
            "flash_bytes_written": 8000 * scale, "log_used": 25, "log_capacity": 100, "commits": 4 * scale,
            "queue": { "submitted": 10 * scale, "depth_sum": 25 * scale },
            "latencies": [{ "path": "block", "command": "read", "structure": "data",
                "device": { "count": 2 * scale, "sum_ns": 30_000 * scale, "buckets": [[10_000, scale], [20_000, scale]] },
                "wait": { "count": 2 * scale, "sum_ns": 0, "buckets": [[0, 2 * scale]] } }],
        });
        Sample { at_ns: seconds * 1_000_000_000, device, filesystem: Value::Null }
    }

    #[test]
    fn an_interval_is_the_difference_of_its_ends() {
        let interval = Interval::between(&sample(10, 1), &sample(12, 3));
        assert_eq!(interval.rates, [1000.0, 3000.0, 50.0, 0.0]);
        assert_eq!((interval.amplification, interval.depth, interval.log_fill), (Some(2.0), 2.5, 0.25));
        assert_eq!(interval.commits, 4.0);
        let row = &interval.latencies[0];
        assert_eq!(row.title, "block read data");
        assert_eq!((row.device.count, row.device.p50_ns, row.device.max_ns), (4, 10_000, 20_000));
        assert_eq!(row.device.mean_ns, 15_000.0);
    }

    #[test]
    fn a_device_powered_up_in_between_starts_anew() {
        let interval = Interval::between(&sample(1, 5), &sample(2, 1));
        assert_eq!((interval.amplification, interval.rates[0]), (None, 0.0));
        assert_eq!(interval.latencies[0].device.count, 2);
    }

    #[test]
    fn durations_have_three_digits() {
        let shown = [999, 1_000, 45_600, 456_000, 1_230_000, 2_000_000_000].map(duration);
        assert_eq!(shown, ["999 ns", "1.00 µs", "45.6 µs", "456 µs", "1.23 ms", "2.00 s"]);
    }
}
