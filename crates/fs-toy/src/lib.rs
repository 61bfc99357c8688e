//! The smallest file system of the house, to read and to copy: everything is one map in host memory, and each
//! change of the map is one record in a log on the block side. It is as complete as the others (links,
//! attributes, holes, orphans, recovery, check) and does nothing to be fast or to be large.
//!
//! Start reading at `map`, then `log` (how a change becomes durable), `store` (what the map makes of names),
//! `files` (what it makes of contents). docs/adding-a-file-system.md goes through it step by step.
#![forbid(unsafe_code)]

mod check;
mod files;
mod format;
mod kept;
mod log;
mod map;
mod store;
mod volume;

pub use store::Toy;
pub use volume::IDENTITY;
