//! One file through both paths (2B-SSD §III): ranges of files pinned onto the window of an SSD, above any
//! file system that says where its files lie.
//!
//! While a range is pinned, the window is the only way to its pages. [`Pinned`] is the file system with that
//! kept in mind: reads and writes of the range go to the window, by whatever call they come, and everything
//! else to the file system below. So a program that stores by bytes and one that reads the file see the same.
//!
//! Invariants:
//! - Pages under a pin belong to the pinned file until the pin is gone: the file is held open, and what would
//!   free them is refused.
//! - The file system below holds nothing of a pinned range in host memory, and reads and writes nothing
//!   there.
//! - What a call wrote is durable when it returns: only the thread that stored can sync what it stored.
#![forbid(unsafe_code)]

mod entry;
mod file;
pub mod format;
mod fs;
pub mod logs;
mod pinned;
mod planted;
mod table;
mod volume;

pub use file::{Done, PinnedFile};
pub use pinned::{MountError, Pinned};
pub use table::{Pin, PinId};

/// The examples of the page about logs are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/wal.md")]
struct Page;
