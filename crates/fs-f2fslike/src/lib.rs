//! A baseline of F2FS's kind: log-structured, with inodes, directories and its own bookkeeping in blocks, and
//! checkpoints (`docs/format/f2fslike.md`). It stands on the layer that AugeFS stands on, `amphi-segments`,
//! with one domain.
//!
//! It is generic over a device with a block port. Start reading at [`F2fsLike`], then `change` (what a change
//! of names does), `writeback`, `checkpoint`, `recover` and `collect`
//! (how it reaches the device, and comes back), `format` (the bits).
#![forbid(unsafe_code)]

mod allocate;
mod append;
mod change;
mod checkpoint;
mod collect;
mod core;
mod dir;
mod file;
pub mod format;
mod fs;
mod fsck;
mod inode;
mod load;
mod mount;
mod nodes;
mod part;
#[cfg(not(feature = "planted-bugs"))]
mod planted;
#[cfg(feature = "planted-bugs")]
pub mod planted;
mod recover;
mod store;
mod sync;
mod trim;
mod volume;
mod writeback;

pub use fs::F2fsLike;
pub use mount::MountError;
pub use volume::IDENTITY;
