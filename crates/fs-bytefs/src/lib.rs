//! ByteFS: a file system whose small updates travel by bytes and large ones by blocks (ASPLOS'25, `docs/papers.md`).
//!
//! It is generic over a device with a block port and a transactional write log, and knows no other crate of the house but `device`, `vfs` and `rt`,
//! and `names`, which says what an operation on names does.
//! Start reading at [`ByteFs`], then `tx` (how an operation becomes durable), `store` and `writeback` (who uses it), `format` (the bits).
#![forbid(unsafe_code)]

mod allocate;
mod areas;
mod bitmap;
mod core;
pub mod diff;
mod dir;
mod dir_index;
mod direct;
mod discard;
mod extent;
mod file;
pub mod format;
mod frames;
mod fs;
pub mod fsck;
mod inode;
mod inode_pages;
mod journal;
mod mount;
mod options;
mod orphans;
mod page;
#[cfg(not(feature = "planted-bugs"))]
mod planted;
#[cfg(feature = "planted-bugs")]
pub mod planted;
mod pressure;

mod redo;
mod store;
mod symlink;
mod truncate;
pub mod tune;
mod tx;
mod txtable;
mod volume;
mod writeback;
mod xattr;

pub use fs::ByteFs;
pub use mount::{FormatOptions, Info, MountError, probe};
pub use options::{DataMode, MountOptions, Variant};
pub use page::CacheUse;
pub use volume::IDENTITY;
