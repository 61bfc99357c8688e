//! Bars of what file systems move and hold: by path, structure and direction, on the link and in flash.

use super::cell::CellResult;
use super::counters::is_data;
use super::measure::{Results, bar};
use crate::figure::Group;

/// What device memory holds of files that exist (DevFS §5.3.1), as the file system counts it and in words.
const FILES: [(&str, &str); 4] = [
    ("inodes", "inodes"),
    ("inodes_away", "what stays of inodes and entries that are away"),
    ("dentries", "entries"),
    ("filemaps", "maps"),
];

impl Results<'_> {
    /// What of the bytes that were written took which path; and of the time on both, one added to the other
    /// although they pass beside each other, what each took.
    pub(super) fn path_shares(&self) -> Vec<Group> {
        let parts = [
            [("bytes, memory path", "split_to_memory"), ("bytes, block path", "split_to_blocks")],
            [("time, memory path", "memory_path_ns"), ("time, block path", "block_path_ns")],
        ];
        self.pairs()
            .filter_map(|(variation, case)| {
                let counted = &self.counting(variation, case, 0)?.counted;
                let count = |name: &str| counted.get(name).copied().unwrap_or(0) as f64;
                let mut bars = Vec::new();
                for of in parts {
                    let all = of.iter().map(|(_, name)| count(name)).sum::<f64>().max(1.0);
                    bars.extend(of.map(|(series, name)| bar(series, count(name) / all * 100.0)));
                }
                Some(Group { label: self.label(variation, case), bars })
            })
            .collect()
    }

    pub(super) fn device_memory(&self) -> Vec<Group> {
        self.pairs()
            .filter_map(|(variation, case)| {
                let set = &self.definition.variations[variation].structure_bytes;
                let of = |result: &CellResult, kind: &str| {
                    let counted = |name: &str| result.device_memory.get(name).copied().unwrap_or(0);
                    match set.get(kind) {
                        Some(bytes) => bytes * counted(&format!("{kind}_count")),
                        None => counted(kind),
                    }
                };
                let all =
                    |result: &CellResult| FILES.map(|(kind, _)| of(result, kind)).iter().sum::<u64>() as f64;
                let base = all(self.counting(variation, case, 0)?);
                let bars = (0..self.definition.systems.len()).filter_map(|system| {
                    let result = self.counting(variation, case, system)?;
                    let bar = bar(self.title(system), all(result) / base);
                    let bar = bar.with("together", all(result), "B");
                    Some(
                        FILES
                            .iter()
                            .fold(bar, |bar, (kind, name)| bar.with(name, of(result, kind) as f64, "B")),
                    )
                });
                Some(Group { label: self.label(variation, case), bars: bars.collect() })
            })
            .collect()
    }

    pub(super) fn host_traffic(&self) -> Vec<Group> {
        /// A bar: its name, a direction, and the structures that it sums up.
        type Part = (&'static str, &'static str, fn(&str) -> bool);
        let parts: [Part; 4] = [
            ("metadata written", "write", |structure| !is_data(structure)),
            ("metadata read", "read", |structure| !is_data(structure)),
            ("data written", "write", is_data),
            ("data read", "read", is_data),
        ];
        let amount = |result: &CellResult, part: usize| {
            let (_, direction, which) = parts[part];
            result.counters.bytes(direction, which) as f64 / result.operations.max(1) as f64
        };
        let metadata = |result: &CellResult| amount(result, 0) + amount(result, 1);
        let data = |result: &CellResult| amount(result, 2) + amount(result, 3);
        let all = |result: &CellResult| (0..4).map(|part| amount(result, part)).sum::<f64>();
        let mut groups = self.shares(&all, &|result| {
            parts.iter().enumerate().map(|(part, (name, ..))| (*name, amount(result, part))).collect()
        });
        groups.extend(self.quotients("metadata traffic", &metadata));
        groups.extend(self.quotients("metadata read", &|result| amount(result, 1)));
        groups.extend(self.quotients("data traffic", &data));
        groups.extend(self.quotients("data written", &|result| amount(result, 2)));
        groups.extend(self.quotients("all traffic", &all));
        groups
    }

    pub(super) fn flash_traffic(&self) -> Vec<Group> {
        let each = |bytes: u64, result: &CellResult| bytes as f64 / result.operations.max(1) as f64;
        let read = |result: &CellResult| each(result.counters.flash_read(), result);
        let written = |result: &CellResult| each(result.counters.flash_written(), result);
        let all = |result: &CellResult| read(result) + written(result);
        let mut groups = self
            .shares(&all, &|result| vec![("flash written", written(result)), ("flash read", read(result))]);
        groups.extend(self.quotients("flash traffic", &all));
        groups
    }

    /// Parts of what each file system moves for an operation, as shares of all that the first one moves.
    fn shares(
        &self,
        all: &dyn Fn(&CellResult) -> f64,
        parts: &dyn Fn(&CellResult) -> Vec<(&'static str, f64)>,
    ) -> Vec<Group> {
        self.pairs()
            .filter_map(|(variation, case)| {
                // Of nothing everything is as much.
                let base = match all(self.counting(variation, case, 0)?) {
                    0.0 => 1.0,
                    base => base,
                };
                let mut bars = Vec::new();
                for system in 0..self.definition.systems.len() {
                    for (name, bytes) in self.counting(variation, case, system).map(parts).unwrap_or_default()
                    {
                        let series = format!("{}, {name}", self.title(system));
                        bars.push(bar(&series, bytes / base).with("for an operation", bytes, "B"));
                    }
                }
                Some(Group { label: self.label(variation, case), bars })
            })
            .collect()
    }

    /// How many times less the last file system moves than each of the others; their mean and the largest
    /// over the cases.
    fn quotients(&self, what: &str, amount: &dyn Fn(&CellResult) -> f64) -> Vec<Group> {
        let mut groups = Vec::new();
        let last = self.definition.systems.len() - 1;
        for system in 0..last {
            let mut bars = Vec::new();
            for (variation, case) in self.pairs() {
                let counting = |system| self.counting(variation, case, system);
                let (Some(base), Some(ours)) = (counting(system), counting(last)) else { continue };
                let (base, ours) = (amount(base), amount(ours));
                if base > 0.0 && ours > 0.0 {
                    bars.push(bar(&self.label(variation, case), base / ours));
                }
            }
            if bars.is_empty() {
                continue;
            }
            let mean = bars.iter().map(|bar| bar.ours).sum::<f64>() / bars.len() as f64;
            let largest = bars.iter().map(|bar| bar.ours).fold(0.0, f64::max);
            bars.push(bar("average", mean));
            bars.push(bar("largest", largest));
            groups.push(Group {
                label: format!("{what}, {} ÷ {}", self.title(system), self.title(last)),
                bars,
            });
        }
        groups
    }

    pub(super) fn amplification(&self) -> Vec<Group> {
        let quotient = |host: u64, asked: u64| if asked == 0 { 0.0 } else { host as f64 / asked as f64 };
        self.pairs()
            .map(|(variation, case)| {
                let mut bars = Vec::new();
                for system in 0..self.definition.systems.len() {
                    let Some(result) = self.counting(variation, case, system) else { continue };
                    for (name, direction, asked) in
                        [("write", "write", result.bytes_written), ("read", "read", result.bytes_read)]
                    {
                        let host = result.counters.bytes(direction, |_| true);
                        let series = format!("{}, {name}", self.title(system));
                        bars.push(
                            bar(&series, quotient(host, asked))
                                .with("between host and device", host as f64, "B")
                                .with("asked for by the workload", asked as f64, "B"),
                        );
                    }
                }
                Group { label: self.label(variation, case), bars }
            })
            .collect()
    }

    pub(super) fn structures(&self) -> Vec<Group> {
        const NAMES: [&str; 8] =
            ["superblock", "bitmap", "inode", "dentry", "pointer", "data", "journal", "other"];
        let mut groups = Vec::new();
        for (direction, done) in [("write", "written"), ("read", "read")] {
            for system in 0..self.definition.systems.len() {
                let mut sums = [0.0; 8];
                let mut counted = 0.0;
                for (variation, case) in self.pairs() {
                    let Some(result) = self.counting(variation, case, system) else { continue };
                    let counters = &result.counters;
                    let total = counters.bytes(direction, |_| true);
                    if total == 0 {
                        continue;
                    }
                    let percent = NAMES.map(|name| {
                        counters.bytes(direction, |structure| structure == name) as f64 * 100.0 / total as f64
                    });
                    sums.iter_mut().zip(percent).for_each(|(sum, percent)| *sum += percent);
                    counted += 1.0;
                    groups.push(Group {
                        label: format!("{}, {}, {done}", self.label(variation, case), self.title(system)),
                        bars: NAMES.iter().zip(percent).map(|(name, percent)| bar(name, percent)).collect(),
                    });
                }
                if counted > 0.0 {
                    let bars = NAMES.iter().zip(sums).map(|(name, sum)| bar(name, sum / counted)).collect();
                    groups.push(Group { label: format!("average, {}, {done}", self.title(system)), bars });
                }
            }
        }
        groups
    }
}
