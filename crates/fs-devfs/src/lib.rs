//! DevFS: a file system that runs inside of the SSD (DevFS, FAST '18). The controller is what runs there; the
//! host sends it commands, which processors of the device carry out.
//!
//! Invariants:
//! - A change counts from the moment in which its record is in protected memory, and as a whole (`tx`).
//! - Data are on flash, or in the file's queue in protected memory, before the record that shows them
//!   (`files`).
//! - A metadata page is newer on flash than any record that a journal has lost (`meta`, `slots`).
//! - Flash has everything that host memory is given, so the host can lose or change it (`away`).
#![forbid(unsafe_code)]

mod allocate;
mod away;
mod blocks;
mod check;
mod closed;
mod commands;
mod controller;
mod credentials;
mod dir;
mod door;
mod entries;
mod filemap;
mod files;
mod finding;
mod format;
mod fs;
mod inode;
mod inside;
mod later;
mod media;
mod memory;
mod meta;
mod mount;
mod open_files;
mod options;
mod part;
mod parts;
#[cfg(not(feature = "planted-bugs"))]
mod planted;
#[cfg(feature = "planted-bugs")]
pub mod planted;
mod pool;
mod processors;
mod rbtree;
mod recover;
mod relief;
mod repair;
mod slots;
mod stats;
mod store;
mod tx;
mod volume;

pub use away::HostMemory;
pub use credentials::{CredentialId, Credentials};
pub use door::{Door, Reception, Speaks};
pub use fs::DevFs;
pub use mount::MountError;
pub use options::{Crash, FormatOptions, MountOptions, OnClose};
pub use recover::Recovered;
pub use volume::IDENTITY;
