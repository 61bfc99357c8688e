//! YCSB's core workloads A to F over a [`Store`](crate::lsm::Store) on a file system under test.
//!
//! The mixes and distributions are data: `workloads/ycsb-a.toml` to `ycsb-f.toml`, and in
//! `workloads/ycsb-store.toml` what all six have alike; those of LevelDB's own benchmark (`leveldb-*.toml`)
//! are mixes too. As YCSB does, a run first loads the records, then
//! does operations chosen by the mix on keys chosen by the distribution, with any number of clients.

mod chance;
mod driver;
mod workload;

pub use driver::{Loaded, load, open, run};
pub use workload::{Distribution, Mix, PRESETS, Store, Ycsb, YcsbError, is_of_a_store, preset};
