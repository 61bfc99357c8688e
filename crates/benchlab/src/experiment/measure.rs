//! How the results of an experiment's cells become bars.

use super::cell::{CellResult, OPERATIONS_MIN};
use super::definition::{Definition, Measure};
use super::system::System;
use crate::figure::{Bar, Detail, Group, Refused};

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

    /// The result of one cell, if it is one: a handful of operations in its window is none.
    pub(super) fn counting(&self, variation: usize, case: usize, system: usize) -> Option<&'a CellResult> {
        Some(self.of(variation, case, system)).filter(|result| result.operations >= OPERATIONS_MIN)
    }

    /// The cells that are no result, with a word why.
    pub(super) fn refused(&self) -> Vec<Refused> {
        let systems = 0..self.definition.systems.len();
        let all =
            self.pairs().flat_map(|(variation, case)| systems.clone().map(move |s| (variation, case, s)));
        all.filter(|(variation, case, system)| self.counting(*variation, *case, *system).is_none())
            .map(|(variation, case, system)| {
                let (title, label) = (self.title(system), self.label(variation, case));
                let CellResult { operations, elapsed_ns, .. } = self.of(variation, case, system);
                let seconds = *elapsed_ns as f64 / 1e9;
                let why = format!(
                    "{title} did {operations} operations in {seconds:.3} s, fewer than the {OPERATIONS_MIN} \
                     that a result needs"
                );
                Refused { place: format!("{label} / {title}"), why }
            })
            .collect()
    }

    pub(super) fn title(&self, system: usize) -> &'static str {
        self.definition.systems[system].title()
    }

    /// The bars of the experiment, with nothing published beside them yet.
    pub(super) fn bars(&self) -> Vec<Group> {
        match self.definition.measure {
            Measure::Throughput => self.throughput(),
            Measure::Time => self.time(),
            Measure::HostTraffic => self.host_traffic(),
            Measure::FlashTraffic => self.flash_traffic(),
            Measure::Amplification => self.amplification(),
            Measure::Structures => self.structures(),
            Measure::Sensitivity => self.sensitivity(),
            Measure::PathShares => self.path_shares(),
            Measure::DeviceMemory => self.device_memory(),
            // `whole` has them.
            Measure::DevicePoints | Measure::Recovery | Measure::Remount | Measure::Commits => Vec::new(),
        }
    }

    pub(super) fn pairs(&self) -> impl Iterator<Item = (usize, usize)> + use<'_> {
        let cases = self.definition.cases.len();
        (0..self.definition.variations.len())
            .flat_map(move |variation| (0..cases).map(move |case| (variation, case)))
    }

    fn throughput(&self) -> Vec<Group> {
        let systems = self.definition.systems.len();
        let mut groups: Vec<Group> = self
            .pairs()
            .map(|(variation, case)| {
                let base = self.counting(variation, case, 0).map(CellResult::operations_per_second);
                let bars = (0..systems).filter_map(|system| {
                    let rate = self.counting(variation, case, system)?.operations_per_second();
                    Some(bar(self.title(system), rate / base?).with("operations a second", rate, "1/s"))
                });
                Group { label: self.label(variation, case), bars: bars.collect() }
            })
            .filter(|group: &Group| !group.bars.is_empty())
            .collect();
        if groups.len() > 2 {
            let mean = |system: usize| {
                let title = self.title(system);
                let all = groups.iter().flat_map(|group| &group.bars).filter(|bar| bar.series == title);
                let all: Vec<f64> = all.map(|bar| bar.ours).collect();
                (!all.is_empty()).then(|| bar(title, all.iter().sum::<f64>() / all.len() as f64))
            };
            let bars = (0..systems).filter_map(mean).collect();
            groups.push(Group { label: "average".to_owned(), bars });
        }
        groups
    }

    /// How many times longer an operation takes than on the first file system; the largest over the groups.
    fn time(&self) -> Vec<Group> {
        let systems = self.definition.systems.len();
        let of = |variation, case, system| {
            let result = self.counting(variation, case, system)?;
            Some(result.elapsed_ns as f64 / result.operations as f64)
        };
        let mut groups = Vec::new();
        let mut largest: Vec<Option<f64>> = vec![None; systems];
        for (variation, case) in self.pairs() {
            let Some(base) = of(variation, case, 0) else { continue };
            let mut bars = Vec::new();
            for (system, largest) in largest.iter_mut().enumerate() {
                let Some(time) = of(variation, case, system) else { continue };
                bars.push(bar(self.title(system), time / base).with("an operation", time / 1e3, "us"));
                *largest = Some(largest.map_or(time / base, |most| most.max(time / base)));
            }
            groups.push(Group { label: self.label(variation, case), bars });
        }
        if groups.len() > 1 {
            let bars = (0..systems).filter_map(|system| Some(bar(self.title(system), largest[system]?)));
            groups.push(Group { label: "largest".to_owned(), bars: bars.collect() });
        }
        groups
    }

    fn sensitivity(&self) -> Vec<Group> {
        let definition = self.definition;
        let mut groups = Vec::new();
        for case in 0..definition.cases.len() {
            for system in 0..definition.systems.len() {
                let base = self.counting(0, case, system).map(CellResult::operations_per_second);
                let bars = definition.variations.iter().enumerate().filter_map(|(variation, changed)| {
                    let result = self.counting(variation, case, system)?;
                    let rate = result.operations_per_second();
                    let bar = bar(&changed.label, rate / base?);
                    let cleaned = result.counters.log_cleanings as f64;
                    Some(bar.with("operations a second", rate, "1/s").with(
                        "log regions cleaned",
                        cleaned,
                        "",
                    ))
                });
                let bars: Vec<Bar> = bars.collect();
                if bars.is_empty() {
                    continue;
                }
                let alone = definition.systems.len() == 1;
                let case = definition.cases[case].label();
                let label = if alone { case.to_owned() } else { format!("{case}, {}", self.title(system)) };
                groups.push(Group { label, bars });
            }
        }
        groups
    }

    /// The cells behind a bar: the one that others are compared with, and the bar's own.
    pub(super) fn behind(&self, group: &str, series: &str) -> Option<[(System, &'a CellResult); 2]> {
        let systems = &self.definition.systems;
        let last = systems.len() - 1;
        for (variation, case) in self.pairs() {
            let label = self.label(variation, case);
            let at = |system: usize| (systems[system], self.of(variation, case, system));
            for (system, named) in systems.iter().enumerate() {
                let title = named.title();
                // A bar of one file system, or a part of one.
                let part =
                    series.strip_prefix(title).is_some_and(|rest| rest.is_empty() || rest.starts_with(", "));
                if group == label && part || series == label && systems.len() == 1 && group.ends_with(title) {
                    return Some([at(0), at(system)]);
                }
                // A case in a group that compares two.
                if series == label && group.ends_with(&format!("{title} ÷ {}", self.title(last))) {
                    return Some([at(system), at(last)]);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Counters;
    use crate::experiment::counters::FlashCount;

    fn result(operations: u64) -> CellResult {
        CellResult {
            operations,
            elapsed_ns: 1_000_000_000,
            bytes_read: 0,
            bytes_written: 0,
            counters: Counters::default(),
            latencies: Vec::new(),
            threads: 1,
            counted: std::collections::BTreeMap::new(),
            device_memory: std::collections::BTreeMap::new(),
        }
    }

    fn definition(measure: &str) -> Definition {
        let text = format!(
            r#"
            name = "small"
            title = "Small"
            question = "Does it work?"
            claim = "It does"
            claim_row = "6"
            method = "Small."
            measure = "{measure}"
            seed = 1
            scale = 0.001
            profile = "mssd-pcie3"
            systems = ["ext4", "bytefs"]
            case = [{{ workload = "webserver" }}, {{ workload = "varmail" }}, {{ workload = "oltp" }}]
            "#
        );
        Definition::from_toml(&text).unwrap()
    }

    /// Four operations of one file system once made the other one "2121 times as fast".
    #[test]
    fn a_handful_of_operations_is_no_result() {
        let cells = [4, 8485, 1000, 2000, 1000, 4000].map(result);
        for measure in ["throughput", "host-traffic", "flash-traffic", "amplification", "structures"] {
            let definition = definition(measure);
            let results = Results { definition: &definition, cells: &cells };
            let resting = |group: &Group| group.label.starts_with("webserver") && measure == "throughput";
            assert!(!results.bars().iter().any(resting), "{measure}: {:?}", results.bars());
            let refused = results.refused();
            assert_eq!(refused.len(), 1, "{refused:?}");
            assert_eq!(refused[0].place, "webserver / Ext4-like");
            assert!(
                refused[0].why.starts_with("Ext4-like did 4 operations in 1.000 s"),
                "{}",
                refused[0].why
            );
        }
    }

    #[test]
    fn time_is_a_multiple_of_the_first_and_the_largest_is_over_the_groups() {
        let definition = definition("time");
        // The second takes half, twice and four times as long; what is refused counts nowhere.
        let cells = [1000, 2000, 1000, 500, 1000, 250].map(result);
        let groups = Results { definition: &definition, cells: &cells }.bars();
        let values = |label: &str| {
            let group = groups.iter().find(|group| group.label == label).unwrap();
            group.bars.iter().map(|bar| bar.ours).collect::<Vec<_>>()
        };
        assert_eq!(values("webserver"), [1.0, 0.5]);
        assert_eq!(values("varmail"), [1.0, 2.0]);
        assert_eq!(values("largest"), [1.0, 4.0]);
        let cells = [1000, 2000, 1000, 500, 1000, 25].map(result);
        let groups = Results { definition: &definition, cells: &cells }.bars();
        let largest = groups.iter().find(|group| group.label == "largest").unwrap();
        assert_eq!(largest.bars[1].ours, 2.0);
    }

    /// Each of the others is compared with the last, and the cells behind it are those two's.
    #[test]
    fn each_of_the_others_is_compared_with_the_last() {
        let mut definition = definition("flash-traffic");
        definition.systems.insert(1, System::Novalike);
        definition.cases.truncate(1);
        let cells = [(100, 8), (200, 4), (400, 2)].map(|(operations, pages_written)| {
            let mut cell = result(operations);
            cell.counters.flash.push(FlashCount { cause: "host".to_owned(), pages_read: 0, pages_written });
            cell
        });
        let results = Results { definition: &definition, cells: &cells };
        let groups = results.bars();
        let compared: Vec<_> = groups
            .iter()
            .filter(|group| group.label.contains('÷'))
            .map(|group| (group.label.as_str(), group.bars[0].ours))
            .collect();
        let wanted =
            [("flash traffic, Ext4-like ÷ ByteFS", 16.0), ("flash traffic, NOVA-like ÷ ByteFS", 4.0)];
        assert_eq!(compared, wanted);
        let pair = results.behind("flash traffic, NOVA-like ÷ ByteFS", "webserver").unwrap();
        assert_eq!(
            pair.map(|(system, cell)| (system, cell.operations)),
            [(System::Novalike, 200), (System::Bytefs, 400)]
        );
    }

    #[test]
    fn an_average_is_of_what_counts() {
        let mut definition = definition("throughput");
        definition.cases.push(definition.cases[2].clone());
        let cells = [4, 8485, 1000, 2000, 1000, 4000, 1000, 6000].map(result);
        let groups = Results { definition: &definition, cells: &cells }.bars();
        let average = groups.iter().find(|group| group.label == "average").unwrap();
        let values: Vec<_> = average.bars.iter().map(|bar| (bar.series.as_str(), bar.ours)).collect();
        assert_eq!(values, [("Ext4-like", 1.0), ("ByteFS", 4.0)]);
    }
}
