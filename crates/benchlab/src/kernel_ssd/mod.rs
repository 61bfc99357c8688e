//! The kernel's own file systems beside ours on equal emulated SSDs: the same workload on ext4, XFS and Btrfs
//! over an exported SSD, and on ByteFS through FUSE and as a library, in dilated real time.
//!
//! Dilation makes the device's times long enough that what the export itself costs vanishes beside them; what
//! is reported is the device's time. Processor time vanishes with it: what file systems cost in software,
//! [`crate::software`] measures.
//!
//! - `contestant` each file system, made on a new SSD
//! - `dilation` how long times must be made, and what the export then still costs
//! - `counters` what the SSD counted between two looks
//! - `run` every workload on every file system
//! - `report` what came of it, as JSON, table and figure

mod contestant;
mod counters;
mod dilation;
mod report;
mod run;

pub use contestant::{CONTESTANTS, Contestant};
pub use counters::Counters;
pub use dilation::{Calibration, OVERHEAD_MAX};
pub use report::{Cell, Latency, Report, SCHEMA, StructureBytes, Workload};
pub use run::{Progress, Settings, run};
