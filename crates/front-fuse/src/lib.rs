//! The FUSE front end: any [`amphi_vfs::FileSystem`] as a mount that every program on the machine can use.
//!
//! [`mount`] attaches a file system to a directory and serves it from threads of its own until it is
//! unmounted. The kernel does what it can do alone: permission checks, locks, the page cache, names and
//! attributes it has seen. That is right because this process is the only one that changes the file system,
//! and it is what makes a mount fast: opening and closing a file that the kernel knows costs no request at
//! all.
//!
//! - `options` what a mount can be asked for
//! - `attach` `/dev/fuse`, `mount(2)` and `fusermount3`, dead mounts, unmounting
//! - `session` a mount's life
//! - `operations` kernel requests to file-system operations
//! - `serve` requests and answers through `/dev/fuse`
//! - `ring` requests and answers through io_uring
//! - `negotiate` what the kernel may do by itself
//! - `answers` what requests are answered with
//! - `listing` the two ways to list a directory
//! - `room` what finds none is tried again, as a removed file may still be on its way out
//! - `trim` the request behind `fstrim`, `pins` the one that pins ranges of files
//! - `answered`, `known`, `given` and `moved` what the kernel remembers, and how it is told what has
//!   overtaken that
//! - `kernel` what it is told without having asked
//! - `caller` who asks
//! - `attributes` and `errno` the translations, one table each
#![deny(unsafe_code)]

mod answered;
mod answers;
mod attach;
mod attributes;
mod caller;
mod errno;
mod given;
mod kernel;
mod known;
mod listing;
mod moved;
mod negotiate;
mod operations;
mod options;
mod passes;
pub mod pins;
mod ring;
mod room;
mod serve;
mod session;
mod trim;

pub use answered::KernelCaches;
pub use attach::{MountError, detach, unmount};
pub use options::{MountOptions, Transport, UnknownTransport};
pub use session::{Session, kernel_offers_rings, kernel_withholds_rings, mount, mount_marked, mount_server};
