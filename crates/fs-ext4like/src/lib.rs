//! A block-only journaling file system of ext4's kind: the baseline that ByteFS is compared with
//! (`docs/papers.md`).
//!
//! What is written when follows ext4 and jbd2: whole metadata blocks in compound transactions, delayed
//! allocation, ordered or journaled data, write-back by age. It is generic over the block port of a device;
//! what names mean it has from the crate `names`. Start reading at [`Ext4Like`], then `journal` and `commit`
//! (how an operation becomes durable), `store` and `writeback` (who uses it), `format` (the bits).
#![forbid(unsafe_code)]

mod allocate;
mod bits;
mod buffers;
mod checkpoint;
mod commit;
mod core;
mod dir;
mod extent;
mod file;
pub mod format;
mod fs;
pub mod fsck;
mod groups;
mod inode;
mod journal;
mod mount;
mod options;
mod orphans;
mod page;
mod pressure;
mod replay;
mod settle;
mod store;
mod sync;
mod truncate;
mod volume;
mod writeback;
mod xattr;

pub use fs::Ext4Like;
pub use mount::{FormatOptions, Info, MountError, probe};
pub use options::{DataMode, MountOptions};
pub use page::CacheUse;
pub use volume::IDENTITY;
