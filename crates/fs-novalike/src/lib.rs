//! A file system of NOVA's kind (FAST '16), as a baseline: each inode has a log of 64 B entries in linked
//! pages, and what is done to it counts when the log's tail moves, by one store of 8 B. Data are copied on
//! write. What spans several inodes goes through a small journal of the words that change. Indexes and free
//! lists are in host memory.
//!
//! It uses the byte port alone. What it shares with the file system of PMFS's kind is in `direct-access`:
//! reading files, making, mounting and checking one, free pages. Start reading at `tx` (how a change counts),
//! then `log` (what an inode's log says), `files` (copy on write), `collect`, `fs` (what it says of itself),
//! `format` (the bits).
#![forbid(unsafe_code)]

mod collect;
mod files;
mod format;
mod fs;
mod journal;
mod log;
#[cfg(not(feature = "planted-bugs"))]
mod planted;
#[cfg(feature = "planted-bugs")]
pub mod planted;
mod store;
mod tx;

pub use fs::{IDENTITY, NovaLike};
