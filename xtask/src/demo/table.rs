//! What the demo measured: one row per workload, with the device's counters before and after.

use serde_json::Value;

use super::screen::grouped;

/// All rows.
#[derive(Default)]
pub struct Table(Vec<Row>);

/// One workload.
pub struct Row {
    name: String,
    operations: u64,
    seconds: f64,
    /// p50 and p99 in µs, where the workload times its operations.
    latencies: Option<(f64, f64)>,
    traffic: Traffic,
}

/// Bytes that moved while a workload ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Traffic {
    by_bytes: u64,
    by_blocks: u64,
    flash: u64,
}

impl Row {
    /// A workload of `operations` that took `seconds`, between two answers of `amphi stats --json`.
    pub fn new(name: &str, operations: u64, seconds: f64, before: &Value, after: &Value) -> Self {
        let traffic = Traffic::of(after).since(Traffic::of(before));
        Self { name: name.to_owned(), operations, seconds, latencies: None, traffic }
    }

    /// With the latencies of single operations.
    pub fn latencies(mut self, p50_us: f64, p99_us: f64) -> Self {
        self.latencies = Some((p50_us, p99_us));
        self
    }
}

impl Traffic {
    fn of(stats: &Value) -> Self {
        let device = &stats["device"];
        let written = |path: &str| {
            let structures = device[path]["structures"].as_array();
            structures.into_iter().flatten().filter_map(|structure| structure["bytes"].as_u64()).sum()
        };
        Self {
            by_bytes: written("byte_write"),
            by_blocks: written("block_write"),
            flash: device["flash_bytes_written"].as_u64().unwrap_or(0),
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            by_bytes: self.by_bytes - before.by_bytes,
            by_blocks: self.by_blocks - before.by_blocks,
            flash: self.flash - before.flash,
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            by_bytes: self.by_bytes + other.by_bytes,
            by_blocks: self.by_blocks + other.by_blocks,
            flash: self.flash + other.flash,
        }
    }

    fn columns(self) -> String {
        let host = self.by_bytes + self.by_blocks;
        let amplification =
            if host == 0 { "-".to_owned() } else { format!("{:.2}", self.flash as f64 / host as f64) };
        let mib = |bytes: u64| format!("{:.1}", bytes as f64 / f64::from(1 << 20));
        format!(
            "{:>11}{:>11}{:>11}{amplification:>8}",
            mib(self.by_bytes),
            mib(self.by_blocks),
            mib(self.flash)
        )
    }
}

impl Table {
    /// Adds a row.
    pub fn push(&mut self, row: Row) {
        self.0.push(row);
    }

    /// Prints all rows and their sum.
    pub fn print(&self, profile: &str) {
        print!("{}", self.text(profile));
    }

    fn text(&self, profile: &str) -> String {
        let mut text = format!(
            "Emulated SSD: profile {profile}, device times as they are. Written to the SSD, in MiB:\n\n"
        );
        text += &format!(
            "{:<16}{:>10}{:>10}{:>10}{:>10}{:>11}{:>11}{:>11}{:>8}\n",
            "workload", "files/txn", "per s", "p50 us", "p99 us", "by bytes", "by blocks", "to flash", "WA"
        );
        for row in &self.0 {
            let (p50, p99) = row.latencies.map_or(("-".to_owned(), "-".to_owned()), |(p50, p99)| {
                (format!("{p50:.0}"), format!("{p99:.0}"))
            });
            let rate = grouped((row.operations as f64 / row.seconds).round() as u64);
            let operations = grouped(row.operations);
            text += &format!(
                "{:<16}{operations:>10}{rate:>10}{p50:>10}{p99:>10}{}\n",
                row.name,
                row.traffic.columns()
            );
        }
        let all = self.0.iter().fold(Traffic::default(), |sum, row| sum.plus(row.traffic));
        text += &format!("{:<56}{}\n", "all", all.columns());
        text += "\nWA: bytes to flash per byte written by the host; small writes wait in the SSD's log, so flash may get them later.\n";
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_row_holds_the_difference_of_two_answers() {
        let stats = |bytes: u64, blocks: u64, flash: u64| {
            let path = |bytes: u64| json!({ "structures": [{ "bytes": bytes }, { "bytes": 1 }] });
            json!({ "device": { "byte_write": path(bytes), "block_write": path(blocks), "flash_bytes_written": flash } })
        };
        let row =
            Row::new("x", 10, 2.0, &stats(5, 7, 100), &stats(5 + (1 << 20), 7 + (3 << 20), 100 + (2 << 20)));
        assert_eq!(row.traffic, Traffic { by_bytes: 1 << 20, by_blocks: 3 << 20, flash: 2 << 20 });
        let mut table = Table::default();
        table.push(row.latencies(12.4, 99.6));
        let text = table.text("p");
        let line = text.lines().find(|line| line.starts_with('x')).unwrap();
        let columns: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(columns, ["x", "10", "5", "12", "100", "1.0", "3.0", "2.0", "0.50"]);
    }
}
