//! A YCSB workload as it is written down, and the six that are built in.

use serde::{Deserialize, Serialize};

use crate::lsm::{StoreCosts, StoreSettings};

/// Why a workload cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum YcsbError {
    /// It is not TOML, or has a key or value that no such workload has; the message names it.
    #[error("the YCSB workload cannot be read: {0}")]
    Syntax(String),
    /// What it says is impossible.
    #[error("YCSB workload {name}: {what}")]
    Impossible {
        /// Its name.
        name: String,
        /// What is wrong.
        what: &'static str,
    },
    /// None is called so.
    #[error("no YCSB workload is called {0}; built in are ycsb-a to ycsb-f, and leveldb-rw, -ws, -rr")]
    Unknown(String),
}

/// A workload, with what all of them have alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ycsb {
    /// Short name: `ycsb-a`.
    pub name: String,
    /// One line for people.
    pub description: String,
    /// Where its numbers come from.
    pub source: String,
    /// Which records are asked for.
    pub distribution: Distribution,
    /// How many of a hundred operations are of which kind.
    pub mix: Mix,
    /// Records in a scan: from 1 to so many, uniformly.
    #[serde(default)]
    pub scan_records_max: u64,
    /// Whether a write is durable on return, where that is not as the others have it.
    #[serde(default)]
    pub sync_writes: Option<bool>,
    /// The store and its load; `workloads/ycsb-store.toml`.
    #[serde(skip)]
    pub store: Store,
}

/// Which records are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Distribution {
    /// All are equally popular.
    Uniform,
    /// Popularity falls by Zipf's law; the popular ones are spread over the keys.
    Zipfian,
    /// The newest is the most popular, and popularity falls by Zipf's law.
    Latest,
}

/// Shares of the operations, in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Mix {
    /// Reads of a record.
    pub read: u64,
    /// Changes of one field of a record.
    pub update: u64,
    /// New records.
    pub insert: u64,
    /// Reads of successive records.
    pub scan: u64,
    /// Reads of a record followed by a change of it.
    pub read_modify_write: u64,
}

/// What all six workloads have alike.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Store {
    /// Where these numbers come from.
    pub source: String,
    /// Records that are loaded before.
    pub records: u64,
    /// Operations that count, over all clients.
    pub operations: u64,
    /// Operations before them that do not.
    pub warm_up_operations: u64,
    /// Clients.
    pub clients: usize,
    /// Bytes of a record's value.
    pub value_bytes: usize,
    /// Whether a write is durable on return.
    pub sync_writes: bool,
    /// How the store is set up.
    pub settings: Option<StoreSettings>,
    /// What its work costs.
    pub costs: StoreCosts,
}

/// The workloads that are built in: name and text.
pub const PRESETS: [(&str, &str); 9] = [
    ("ycsb-a", include_str!("../../../../workloads/ycsb-a.toml")),
    ("ycsb-b", include_str!("../../../../workloads/ycsb-b.toml")),
    ("ycsb-c", include_str!("../../../../workloads/ycsb-c.toml")),
    ("ycsb-d", include_str!("../../../../workloads/ycsb-d.toml")),
    ("ycsb-e", include_str!("../../../../workloads/ycsb-e.toml")),
    ("ycsb-f", include_str!("../../../../workloads/ycsb-f.toml")),
    ("leveldb-rw", include_str!("../../../../workloads/leveldb-rw.toml")),
    ("leveldb-ws", include_str!("../../../../workloads/leveldb-ws.toml")),
    ("leveldb-rr", include_str!("../../../../workloads/leveldb-rr.toml")),
];

const STORE: &str = include_str!("../../../../workloads/ycsb-store.toml");
/// That of the workloads that are LevelDB's own benchmark.
const LEVELDB: &str = include_str!("../../../../workloads/leveldb-store.toml");

/// A built-in workload.
///
/// # Errors
/// There is none of that name.
pub fn preset(name: &str) -> Result<Ycsb, YcsbError> {
    let found = PRESETS.iter().find(|preset| preset.0 == name);
    let (_, text) = found.ok_or_else(|| YcsbError::Unknown(name.to_owned()))?;
    Ycsb::from_toml(text, if name.starts_with("leveldb-") { LEVELDB } else { STORE })
}

/// Whether a workload of that name is one of a store.
#[must_use]
pub fn is_of_a_store(name: &str) -> bool {
    name.starts_with("ycsb-") || name.starts_with("leveldb-")
}

impl Ycsb {
    /// Reads a workload, and what it has in common with others.
    ///
    /// # Errors
    /// It is not TOML, says something that no workload has, or is impossible.
    pub fn from_toml(text: &str, store: &str) -> Result<Self, YcsbError> {
        let syntax = |error: toml::de::Error| YcsbError::Syntax(error.to_string());
        let mut read: Self = toml::from_str(text).map_err(syntax)?;
        read.store = toml::from_str(store).map_err(syntax)?;
        read.store.sync_writes = read.sync_writes.unwrap_or(read.store.sync_writes);
        match read.impossible() {
            Some(what) => Err(YcsbError::Impossible { name: read.name, what }),
            None => Ok(read),
        }
    }

    fn impossible(&self) -> Option<&'static str> {
        let (mix, store) = (&self.mix, &self.store);
        let sum = [mix.read, mix.update, mix.insert, mix.scan, mix.read_modify_write]
            .iter()
            .try_fold(0_u64, |sum, share| sum.checked_add(*share));
        if sum != Some(100) {
            Some("the shares of its mix must add up to 100")
        } else if mix.scan > 0 && !(1..=10_000).contains(&self.scan_records_max) {
            Some("its scans need scan_records_max, 1 to 10,000")
        } else if !(1..=1 << 40).contains(&store.records) || !(1..=1 << 40).contains(&store.operations) {
            Some("it needs at least one record and one operation")
        } else if !(1..=4096).contains(&store.clients) {
            Some("it needs 1 to 4096 clients")
        } else if !(1..=1 << 20).contains(&store.value_bytes) {
            Some("its values need 1 B to 1 MiB")
        } else if store.settings.is_none() {
            Some("it does not say how the store is set up")
        } else {
            None
        }
    }

    /// The same made small: records, operations, and the store's buffers and files, so that its tree keeps
    /// its shape. Buffers and files have at least 256 KiB.
    #[must_use]
    pub fn scaled(&self, scale: f64) -> Self {
        let mut scaled = self.clone();
        let store = &mut scaled.store;
        let count = |of: u64| ((of as f64 * scale).round() as u64).max(1);
        store.records = count(store.records);
        store.operations = count(store.operations);
        store.warm_up_operations = count(store.warm_up_operations);
        if let Some(settings) = &mut store.settings {
            let bytes = |of: usize| ((of as f64 * scale) as usize).clamp((256 << 10).min(of), of);
            settings.write_buffer_bytes = bytes(settings.write_buffer_bytes);
            settings.file_bytes = bytes(settings.file_bytes);
            settings.block_cache_bytes = bytes(settings.block_cache_bytes);
        }
        scaled
    }

    /// The same with so many clients.
    #[must_use]
    pub fn with_clients(&self, clients: usize) -> Self {
        let mut changed = self.clone();
        changed.store.clients = clients;
        changed
    }

    /// Bytes of all records that are loaded.
    #[must_use]
    pub fn bytes_before(&self) -> u64 {
        self.store.records * self.store.value_bytes as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_ones_are_well_formed() {
        for (name, _) in PRESETS {
            assert_eq!(preset(name).unwrap().name, name);
        }
        assert_eq!(preset("ycsb-g"), Err(YcsbError::Unknown("ycsb-g".into())));
    }

    #[test]
    fn what_is_impossible_is_refused_by_name() {
        let (_, text) = PRESETS[4];
        for (from, to, says) in [
            ("scan = 95", "scan = 90", "add up to 100"),
            ("scan_records_max = 100", "", "need scan_records_max"),
            ("\"zipfian\"", "\"zipf\"", "zipf"),
        ] {
            assert!(text.contains(from), "{from}");
            let refused = Ycsb::from_toml(&text.replace(from, to), STORE).expect_err(says);
            assert!(refused.to_string().contains(says), "{refused}");
        }
        let none = Ycsb::from_toml(text, &STORE.replace("clients = 12", "clients = 0")).unwrap_err();
        assert!(none.to_string().contains("1 to 4096 clients"), "{none}");
    }

    #[test]
    fn a_small_one_keeps_its_mix() {
        let whole = preset("ycsb-a").unwrap();
        let small = whole.scaled(0.01);
        assert_eq!((small.store.records, small.mix), (whole.store.records / 100, whole.mix));
        assert!(
            small.store.settings.unwrap().write_buffer_bytes
                < whole.store.settings.unwrap().write_buffer_bytes
        );
    }
}
