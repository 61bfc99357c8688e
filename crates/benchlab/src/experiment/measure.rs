//! How the results of an experiment's cells become bars.

use super::cell::CellResult;
use super::counters::is_data;
use super::definition::{Definition, Measure};
use super::system::System;
use crate::figure::{Bar, Detail, Group};

/// The results of an experiment by case, system and variation, each by its position.
pub(super) struct Results<'a> {
    pub(super) definition: &'a Definition,
    pub(super) cells: &'a [CellResult],
}

impl<'a> Results<'a> {
    /// The result of one cell.
    pub(super) fn of(&self, variation: usize, case: usize, system: usize) -> &'a CellResult {
        let definition = self.definition;
        &self.cells[(variation * definition.cases.len() + case) * definition.systems.len() + system]
    }

    /// The label of a group of bars.
    pub(super) fn label(&self, variation: usize, case: usize) -> String {
        let case = self.definition.cases[case].label();
        match self.definition.variations[variation].label.as_str() {
            "" => case.to_owned(),
            label => format!("{case}, {label}"),
        }
    }

    fn title(&self, system: usize) -> &'static str {
        self.definition.systems[system].title()
    }

    /// The bars of the experiment, with nothing published beside them yet.
    pub(super) fn bars(&self) -> Vec<Group> {
        match self.definition.measure {
            Measure::Throughput => self.throughput(),
            Measure::HostTraffic => self.host_traffic(),
            Measure::FlashTraffic => self.flash_traffic(),
            Measure::Amplification => self.amplification(),
            Measure::Structures => self.structures(),
            Measure::Sensitivity => self.sensitivity(),
            // These are not made of cells.
            Measure::DevicePoints | Measure::Recovery => Vec::new(),
        }
    }

    fn pairs(&self) -> impl Iterator<Item = (usize, usize)> + use<'_> {
        let cases = self.definition.cases.len();
        (0..self.definition.variations.len())
            .flat_map(move |variation| (0..cases).map(move |case| (variation, case)))
    }

    fn throughput(&self) -> Vec<Group> {
        let systems = self.definition.systems.len();
        let mut groups: Vec<Group> = self
            .pairs()
            .map(|(variation, case)| {
                let base = self.of(variation, case, 0).operations_per_second();
                let bars = (0..systems).map(|system| {
                    let rate = self.of(variation, case, system).operations_per_second();
                    bar(self.title(system), rate / base).with("operations a second", rate, "1/s")
                });
                Group { label: self.label(variation, case), bars: bars.collect() }
            })
            .collect();
        if groups.len() > 2 {
            let mean = |system: usize| {
                groups.iter().map(|group| group.bars[system].ours).sum::<f64>() / groups.len() as f64
            };
            let bars = (0..systems).map(|system| bar(self.title(system), mean(system))).collect();
            groups.push(Group { label: "average".to_owned(), bars });
        }
        groups
    }

    fn sensitivity(&self) -> Vec<Group> {
        let definition = self.definition;
        let mut groups = Vec::new();
        for case in 0..definition.cases.len() {
            for system in 0..definition.systems.len() {
                let base = self.of(0, case, system).operations_per_second();
                let bars = definition.variations.iter().enumerate().map(|(variation, changed)| {
                    let result = self.of(variation, case, system);
                    let rate = result.operations_per_second();
                    bar(&changed.label, rate / base).with("operations a second", rate, "1/s").with(
                        "log regions cleaned",
                        result.counters.log_cleanings as f64,
                        "",
                    )
                });
                let bars = bars.collect();
                let alone = definition.systems.len() == 1;
                let case = definition.cases[case].label();
                let label = if alone { case.to_owned() } else { format!("{case}, {}", self.title(system)) };
                groups.push(Group { label, bars });
            }
        }
        groups
    }

    fn host_traffic(&self) -> Vec<Group> {
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
        let all = |result: &CellResult| (0..4).map(|part| amount(result, part)).sum::<f64>();
        let mut groups = self.shares(&all, &|result| {
            parts.iter().enumerate().map(|(part, (name, ..))| (*name, amount(result, part))).collect()
        });
        groups.extend(self.quotients("metadata traffic", &metadata));
        groups.extend(self.quotients("all traffic", &all));
        groups
    }

    fn flash_traffic(&self) -> Vec<Group> {
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
            .map(|(variation, case)| {
                // Of nothing everything is as much.
                let base = match all(self.of(variation, case, 0)) {
                    0.0 => 1.0,
                    base => base,
                };
                let mut bars = Vec::new();
                for system in 0..self.definition.systems.len() {
                    for (name, bytes) in parts(self.of(variation, case, system)) {
                        let series = format!("{}, {name}", self.title(system));
                        bars.push(bar(&series, bytes / base).with("for an operation", bytes, "B"));
                    }
                }
                Group { label: self.label(variation, case), bars }
            })
            .collect()
    }

    /// How many times less the other file systems move than the first one; their mean and the largest over the cases.
    fn quotients(&self, what: &str, amount: &dyn Fn(&CellResult) -> f64) -> Vec<Group> {
        let mut groups = Vec::new();
        for system in 1..self.definition.systems.len() {
            let mut bars = Vec::new();
            for (variation, case) in self.pairs() {
                let (base, ours) =
                    (amount(self.of(variation, case, 0)), amount(self.of(variation, case, system)));
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
            groups
                .push(Group { label: format!("{what}, {} ÷ {}", self.title(0), self.title(system)), bars });
        }
        groups
    }

    fn amplification(&self) -> Vec<Group> {
        let quotient = |host: u64, asked: u64| if asked == 0 { 0.0 } else { host as f64 / asked as f64 };
        self.pairs()
            .map(|(variation, case)| {
                let mut bars = Vec::new();
                for system in 0..self.definition.systems.len() {
                    let result = self.of(variation, case, system);
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

    fn structures(&self) -> Vec<Group> {
        const NAMES: [&str; 8] =
            ["superblock", "bitmap", "inode", "dentry", "pointer", "data", "journal", "other"];
        let mut groups = Vec::new();
        for (direction, done) in [("write", "written"), ("read", "read")] {
            for system in 0..self.definition.systems.len() {
                let mut sums = [0.0; 8];
                let mut counted = 0.0;
                for (variation, case) in self.pairs() {
                    let counters = &self.of(variation, case, system).counters;
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

    /// The cells behind a bar: the one that others are compared with, and the bar's own.
    pub(super) fn behind(&self, group: &str, series: &str) -> Option<[(System, &'a CellResult); 2]> {
        let systems = &self.definition.systems;
        for (variation, case) in self.pairs() {
            let label = self.label(variation, case);
            for (system, named) in systems.iter().enumerate() {
                let title = named.title();
                // A bar of one file system, a part of one, or a case in a group that compares two.
                let part =
                    series.strip_prefix(title).is_some_and(|rest| rest.is_empty() || rest.starts_with(", "));
                let compared =
                    series == label && group.ends_with(title) && (system > 0 || systems.len() == 1);
                if group == label && part || compared {
                    let at = |system: usize| (systems[system], self.of(variation, case, system));
                    return Some([at(0), at(system)]);
                }
            }
        }
        None
    }
}

/// A bar of ours.
pub(super) fn bar(series: &str, ours: f64) -> Bar {
    Bar { series: series.to_owned(), ours, unit: None, published: None, note: None, details: Vec::new() }
}

impl Bar {
    /// The same with a number behind it.
    pub(super) fn with(mut self, name: &str, value: f64, unit: &str) -> Self {
        self.details.push(Detail { name: name.to_owned(), value, unit: unit.to_owned() });
        self
    }
}
