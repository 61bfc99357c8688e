//! AugeFS: a log-structured file system whose metadata live in a key-value store with its log in an SSD's
//! memory area (`docs/papers.md`).
//!
//! It is generic over a device with a block port and a memory area. Start reading at [`AugeFs`], then
//! `change` (what a change of names writes), `domain` and `writeback` (how data reach the device),
//! `checkpoint` and `recover`, `format` (the bits).
#![forbid(unsafe_code)]

mod allocate;
mod change;
mod checkpoint;
mod collect;
mod core;
mod dentries;
mod domain;
mod drops;
mod file;
pub mod format;
mod fs;
pub mod fsck;
mod inode;
mod load;
mod meta;
mod mount;
mod nodes;
mod options;
mod overlay;
mod part;
#[cfg(not(feature = "planted-bugs"))]
mod planted;
#[cfg(feature = "planted-bugs")]
pub mod planted;
mod recover;
mod stats;
mod store;
mod volume;
mod writeback;

pub use fs::AugeFs;
pub use mount::{Info, MountError, info};
pub use options::{FormatOptions, MountOptions};
pub use recover::Recovered;
pub use stats::Stats;
pub use volume::IDENTITY;
