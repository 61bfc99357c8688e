//! Experiments: a figure or table of a paper as data (`experiments/*.toml`), the cells that it is made of,
//! each a workload on a file system on a device in virtual time, and how their counters become bars beside
//! the published ones.
//!
//! Start at [`Definition`], then [`run::cell`] (one cell) and [`lab::run`] (all of an experiment).

mod ablation;
mod block_log;
pub mod cell;
mod commits;
mod counters;
mod definition;
mod explain;
pub mod guard;
mod jobs;
pub mod lab;
mod list;
mod loaded;
mod machine;
mod measure;
mod mounted;
mod recovery;
mod remount;
pub mod replay;
pub mod run;
pub mod state;
mod system;
mod traffic;
mod whole;
mod wishes;

pub use counters::{Counters, FlashCount, Transfers};
pub use definition::{Ablation, Case, ComputingOf, Definition, Explained, Measure, Published, Variation};
pub use list::{DefinitionError, EXPERIMENTS, Experiment, experiment};
pub use loaded::LoadedDevices;
pub use machine::Machine;
pub use system::System;
pub use wishes::{Wishes, cells};
