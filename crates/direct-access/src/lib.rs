//! What file systems share that have everything in bytes of the device, in place of a page cache: the file
//! systems of PMFS's and of NOVA's kind.
//!
//! A file system says, by [`DirectAccess`], where a file's pages are, how an inode is read, what undoes what
//! a crash has left open, and how bytes are written. What is here makes, mounts and checks it, reads files,
//! hands out pages and numbers of inodes, and gives them back if a change does not count.
//!
//! - Free pages and free numbers are in host memory alone. A mount reads all inodes to find them.
//! - What a change takes was promised before anything changed, so that it cannot run out on the way.
//! - Pages that a change frees are free once it counts, not before.
//! - Every call is durable when it returns: a store is written back at once, and a [`Medium::barrier`] ends
//!   each change.
//!
//! Start reading at `ground` (what a file system says, and what is kept for it), then `medium` (the byte
//! port), `taken` (what a change takes), `files`, `mount`, `check`.
#![forbid(unsafe_code)]

mod check;
mod files;
mod format;
mod forward;
mod ground;
mod medium;
mod mount;
#[cfg(not(feature = "planted-bugs"))]
mod planted;
#[cfg(feature = "planted-bugs")]
pub mod planted;
mod space;
mod taken;

pub use check::check;
pub use files::{
    allocate, attributes, blocks_of, discard_free, fsync, holes, in_change, read, seek, statfs, within, write,
};
pub use format::{FILE_BLOCKS_MAX, PAGE, Superblock, TYPES, valid_word};
pub use ground::{DirectAccess, Ground, Layout};
pub use medium::Medium;
pub use mount::{about, close, format, open, probe, tune};
pub use space::{Numbers, Space};
pub use taken::Taken;
