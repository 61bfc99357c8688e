//! NAND flash and the translation layer above it: erase blocks, page mapping, garbage collection.

mod blocks;
mod checkpoint;
mod checkpoints;
mod collect;
mod failures;
mod mapping;
mod media;
mod rebuild;
mod table;
mod trimming;
mod trims;
mod unflushed;
mod volatile;

pub(crate) use blocks::{Blocks, Stream};
pub(crate) use checkpoints::Checkpoints;
pub use media::{GcPolicy, MediaProfile};
pub(crate) use rebuild::rebuild;
pub(crate) use table::MapTable;
pub(crate) use trims::TrimLog;
pub use volatile::Fate;
pub(crate) use volatile::VolatileCache;
