//! The file systems that are measured beside each other, made for the run and taken away after it, however it
//! ends.
//!
//! - `program` runs `mkfs` and `mount`
//! - `workspace` memory for backing files and mount points; tmpfs
//! - `disk` a loop device or zram with a file system of the kernel's on it
//! - `ours` ByteFS as a library, and through FUSE from a daemon of its own; others as libraries
//! - `trivial` what FUSE itself costs: a file system that does nothing else, from a daemon like ours
//! - `daemon` a process that serves a mount
//! - `served` an SSD of its own, mounted or exported by such a process
//! - `exported` a file system of the kernel's on an emulated SSD's block side

mod daemon;
mod disk;
mod exported;
mod ours;
mod program;
mod served;
mod trivial;
mod workspace;

pub use daemon::{Daemon, dying_with_us};
pub use disk::{Backing, Disk, reclaim};
pub use exported::{Attached, Exported, KernelFs};
pub use ours::{library, library_of, mounted};
pub use program::{output, run};
pub use served::{Served, Service};
pub use trivial::served as trivial;
pub use workspace::{Tmpfs, Workspace, text};
