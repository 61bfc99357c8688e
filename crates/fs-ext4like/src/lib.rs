//! A block-only journaling file system of ext4's kind: the baseline that ByteFS is compared with
//! (`docs/papers.md`).
//!
//! What is written when follows ext4 and jbd2: whole metadata blocks in compound transactions, delayed
//! allocation, ordered or journaled data, write-back by age. It is generic over the block port of a device;
//! what names mean it has from the crate `names`. Start reading at [`Ext4Like`], then `journal`
//! (how an operation becomes durable), `store` and `data::writeback` (who uses it), `format` (the bits).
//! The folders beside it: `space` (what is taken), `index` (where things are), `data` (what files hold).
#![forbid(unsafe_code)]

mod base;
mod core;
mod data;
pub mod format;
mod fs;
pub mod fsck;
mod index;
mod journal;
mod mount;
mod options;
mod space;
mod store;
mod update;
mod volume;

pub use amphi_page_cache::CacheUse;
pub use fs::Ext4Like;
pub use mount::{FormatOptions, IDENTITY, MountError, probe};
pub use options::{DataMode, MountOptions};
