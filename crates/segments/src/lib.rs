//! What log-structured file systems of F2FS's kind have in common: a main area of segments, logs of data and
//! of nodes that fill them, a NAT that says where nodes are, a SIT that says which blocks are valid,
//! summaries that say whose blocks are, and the collection of garbage.
//!
//! It does not know how a checkpoint comes to count: AugeFS keeps that in its metadata store, the file system
//! of F2FS's kind in packs of blocks. [`files`] has what writes files by way of pages in host memory,
//! [`reads`] what brings them there, [`ranges`] what finds and clears parts of them. [`Domain`] is what one
//! set of logs knows, [`Ground`] is where all of it lies on the device.
#![forbid(unsafe_code)]

mod about;
mod background;
mod cached_nodes;
mod check;
mod checkpoint;
mod collect;
mod domain;
pub mod files;
pub mod format;
mod forward;
mod ground;
mod inode;
mod load;
mod nodes;
mod pages;
pub mod ranges;
pub mod reads;
mod space;

pub use about::about;
pub use background::Running;
pub use cached_nodes::{Node, Nodes, Referenced, make_room};
pub use check::Used;
pub use checkpoint::{write_nat, write_summaries};
pub use collect::{move_blocks, read_summary, victim};
pub use domain::{Blocks, DATA, Domain, Log, NODES, NatPart, Parts, Segment};
pub use ground::{Ground, Writes};
pub use load::{load_nat, read_newer, read_superblock, write_superblock};
pub use nodes::{Sealed, as_writes};
pub use space::{Segments, Space, segments_held};

use amphi_vfs::Error;

/// That something on the device is not what was written.
#[must_use]
pub fn damaged(what: &'static str, number: u64) -> Error {
    Error::corrupt(what, number, "it is not what was written")
}
