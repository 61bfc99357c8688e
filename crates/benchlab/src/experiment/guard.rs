//! The guard over virtual-time results: a few small cells whose results are stored with the sources and
//! compared exactly. Whoever changes what a file system or the emulator does sees here what that does to its
//! figures, and accepts it with `amphi bench guard --accept`.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::cell::{Cell, CellResult};
use super::definition::Variation;
use super::loaded::LoadedDevices;
use super::run;
use super::system::System;

/// The stored results: `docs/results/guard.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stored {
    /// One for each cell, in the order of [`cells`].
    pub results: Vec<StoredResult>,
}

/// A stored result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredResult {
    /// Workload and file system.
    pub name: String,
    /// What it came to.
    pub result: CellResult,
}

/// The cells: small enough that all together take seconds, of every file system and of every way in which
/// data travel. Those with other mount options, or with something left out, are not among them.
#[must_use]
pub fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for system in System::ALL.into_iter().filter(|system| !system.is_a_part()) {
        for workload in ["varmail", "oltp-sync", "mkdir"] {
            cells.push(Cell {
                workload: workload.to_owned(),
                parameters: BTreeMap::new(),
                threads: Some(12),
                system,
                profile: "mssd-pcie3".to_owned(),
                variation: Variation::default(),
                scale: 0.001,
                seed: 1,
            });
        }
    }
    cells
}

/// Runs the cells.
///
/// # Errors
/// One failed.
pub fn run() -> Result<Stored> {
    let named = |cell: &Cell| format!("{} on {}", cell.workload, cell.system.title());
    let loaded = LoadedDevices::default();
    let results = cells().into_iter().map(|cell| {
        let result = run::cell(&cell, &loaded).with_context(|| named(&cell))?;
        // How large structures are in memory is the compiler's business too, not only the program's.
        let result = CellResult { device_memory: BTreeMap::new(), ..result };
        Ok(StoredResult { name: named(&cell), result })
    });
    Ok(Stored { results: results.collect::<Result<_>>()? })
}

/// How two results differ, a line for each number that does:
/// `varmail on ByteFS: operations 100 -> 102 (+2.0 %)`.
///
/// # Errors
/// Never: both are plain data.
pub fn differences(stored: &Stored, now: &Stored) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for found in &now.results {
        let Some(before) = stored.results.iter().find(|before| before.name == found.name) else {
            lines.push(format!("{}: new", found.name));
            continue;
        };
        let (before, after) = (flat(&before.result)?, flat(&found.result)?);
        for key in before.keys().chain(after.keys()).collect::<std::collections::BTreeSet<_>>() {
            let (old, new) = (before.get(key).copied(), after.get(key).copied());
            if old != new {
                lines.push(format!("{}: {key} {}", found.name, change(old, new)));
            }
        }
    }
    for gone in &stored.results {
        if !now.results.iter().any(|found| found.name == gone.name) {
            lines.push(format!("{}: gone", gone.name));
        }
    }
    Ok(lines)
}

fn change(old: Option<f64>, new: Option<f64>) -> String {
    let (old, new) = (old.unwrap_or(0.0), new.unwrap_or(0.0));
    if old == 0.0 {
        format!("{old} -> {new}")
    } else {
        format!("{old} -> {new} ({:+.1} %)", (new / old - 1.0) * 100.0)
    }
}

/// Every number of a result by its path. Elements of lists that have a name go by it, so that one more of
/// them does not move the others.
fn flat(result: &CellResult) -> Result<BTreeMap<String, f64>> {
    let mut numbers = BTreeMap::new();
    collect(&serde_json::to_value(result)?, "", &mut numbers);
    Ok(numbers)
}

fn collect(value: &Value, path: &str, into: &mut BTreeMap<String, f64>) {
    let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match value {
        Value::Number(number) => drop(into.insert(path.to_owned(), number.as_f64().unwrap_or(0.0))),
        Value::Object(fields) => fields.iter().for_each(|(name, value)| collect(value, &below(name), into)),
        Value::Array(elements) => {
            for (at, element) in elements.iter().enumerate() {
                let names: Vec<&str> = ["path", "structure", "cause", "operation"]
                    .iter()
                    .filter_map(|key| element.get(key).and_then(Value::as_str))
                    .collect();
                let name = if names.is_empty() { at.to_string() } else { names.join(" ") };
                collect(element, &below(&name), into);
            }
        }
        _ => {}
    }
}
