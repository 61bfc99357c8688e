//! A file system of PMFS's kind (EuroSys '14), as a baseline: metadata change in place, under an undo log of
//! 64 B entries that all of the file system shares; what one store changes as a whole needs no log. Data are
//! written where they lie, past any page cache. A file's pages are found by a tree of pages of pointers, the
//! inodes are such a file themselves, and a directory's blocks hold entries one behind the other. Free lists
//! are in host memory.
//!
//! It uses the byte port alone. What it shares with the file system of NOVA's kind is in `direct-access`:
//! reading files, making, mounting and checking one, free pages. Start reading at `tx` (how a change counts),
//! then `log`, `tree` (where pages are), `dir`, `files` (data in place), `fs` (what it says of itself),
//! `format` (the bits).
#![forbid(unsafe_code)]

mod dir;
mod files;
mod format;
mod fs;
mod inode;
mod log;
mod numbers;
#[cfg(not(feature = "planted-bugs"))]
mod planted;
#[cfg(feature = "planted-bugs")]
pub mod planted;
mod store;
mod stores;
mod table;
mod tree;
mod tx;

pub use fs::{IDENTITY, PmfsLike};
