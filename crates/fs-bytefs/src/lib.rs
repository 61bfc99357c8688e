//! ByteFS: a file system whose small updates travel by bytes and large ones by blocks (ASPLOS'25,
//! `docs/papers.md`).
//!
//! It is generic over a device with a block port and a transactional write log, and knows no other crate of
//! the house but `device`, `vfs` and `rt`, and `names`, which says what an operation on names does. Start
//! reading at [`ByteFs`], then `commit::tx` (how an operation becomes durable), `store` and `data::writeback`
//! (who uses it), `format` (the bits). The folders: `space` (what is taken), `index` (where things are),
//! `data` (what files hold), `commit` (how changes count).
#![forbid(unsafe_code)]

mod base;
mod commit;
mod core;
mod data;
pub mod format;
mod fs;
pub mod fsck;
mod index;
mod mount;
mod options;
#[cfg(not(feature = "planted-bugs"))]
mod planted;
#[cfg(feature = "planted-bugs")]
pub mod planted;
mod space;
mod store;
pub mod tune;
mod volume;

pub use amphi_page_cache::CacheUse;
pub use data::diff;
pub use fs::ByteFs;
pub use mount::{FormatOptions, Info, MountError, probe};
pub use options::{DataMode, MetadataMode, MountOptions, Variant};
pub use volume::IDENTITY;
