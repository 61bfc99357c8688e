//! A key-value store on a dual-interface SSD (AugeFS §V): a log in the memory area that tasks write beside
//! each other, a memtable, tables on the block side. It knows nothing of files.
#![forbid(unsafe_code)]

mod batch;
mod bloom;
mod cache;
mod entry;
mod error;
mod extents;
mod format;
mod in_flight;
mod key;
pub mod log;
mod manifest;
mod memtable;
mod merge;
pub mod planted;
mod store;
mod table;

pub use batch::Batch;
pub use error::{Error, Result};
pub use store::{Options, Place, Range, Snapshot, Store};
