//! The firmware's write log (ByteFS §4.3): two regions of device memory that take every byte write, the three-layer index
//! over them, the transaction log, cleaning and recovery.

mod append;
mod chunks;
mod clean;
mod commits;
mod read;
mod recover;
mod skiplist;
mod space;
mod txlog;
mod unreadable;
mod versions;

pub(crate) use clean::Cleaning;
pub(crate) use skiplist::PageIndex;
pub(crate) use space::LogSpace;
pub(crate) use txlog::TxLog;
