//! RomeFS: a file system that uses both paths of an SSD for one request (SoCC'24, `docs/papers.md`): large
//! aligned parts of a write go by blocks, the rest by bytes into a battery-backed memory area, at the same
//! time and as one transaction.
//!
//! It is generic over a device with a block port and a memory area, and knows no other crate of the house but
//! `device`, `vfs`, `rt`, and `names`, which says what an operation on names does.
//! Start reading at [`RomeFs`], then `write` (the six stages), `plan` (what a write will do), `merge` and
//! `writeback` (what becomes of data logs), `journal`, `format` (the bits).
#![forbid(unsafe_code)]

mod allocate;
mod background;
mod buffer;
mod cache;
mod change;
mod checkpoint;
mod core;
mod dir;
mod entries;
mod execute;
pub mod format;
mod fs;
pub mod fsck;
mod inode;
mod io_threads;
mod journal;
mod lazy;
mod logs;
mod lookup;
mod map;
mod mapping;
mod memory;
mod merge;
mod meta;
mod mount;
mod ops;
mod options;
mod part;
mod plan;
#[cfg(not(feature = "planted-bugs"))]
mod planted;
#[cfg(feature = "planted-bugs")]
pub mod planted;
mod pool;
mod read;
mod split;
mod stats;
mod store;
mod tree;
mod truncate;
mod tune;
mod tx;
mod victims;
mod volume;
mod write;
mod writeback;
mod xattr;

pub use fs::RomeFs;
pub use journal::Recovered;
pub use mount::{Info, MountError, probe};
pub use options::{Data, FormatOptions, MountOptions};
pub use stats::Stats;
pub use volume::IDENTITY;
