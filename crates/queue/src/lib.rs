//! A queue of file commands in memory that a client and a server share: the format, both ends of it, and what
//! a command does to a [`FileSystem`](amphi_vfs::FileSystem).
//!
//! A command is an operation of POSIX with its arguments: open a path, write at an offset, rename. A
//! program's call is then one round trip, however long its path. The server may be a mount's daemon, beside
//! FUSE, or the firmware of an SSD that hosts its file system.
//!
//! Invariants:
//! - The server trusts nothing in the memory. It copies an entry out once and checks every number of the
//!   copy; its own counters and the [`Geometry`] stay in its own memory.
//! - A lane has one client thread and one server thread at a time, so no entry has two writers.
//! - Data of reads and writes lie in the shared memory and are copied once, between there and the file
//!   system. A client that changes them meanwhile gets a mixture in its own file. Names, targets and
//!   attributes are copied out before they are read.
#![deny(unsafe_code)]

mod attributes;
mod bell;
mod client;
mod command;
mod crowd;
mod done;
mod executor;
pub mod format;
mod geometry;
mod handles;
mod last;
mod learned;
mod listing;
mod marks;
mod memory;
mod naming;
mod planted;
mod protected;
mod serve;
mod server;
mod session;
mod status;
mod walk;

pub use bell::{Bell, TaskBell};
pub use client::{Client, Ended, Patience};
pub use command::{Access, At, Command, Create, Malformed, OpenHow};
pub use crowd::{ALONE_NS, Crowd};
pub use executor::{Called, CommandDevice, Executor, Host, Taken};
pub use geometry::Geometry;
pub use learned::{Learned, POLL_NS};
pub use listing::{first_listed, type_bits};
pub use marks::{Marks, Remembered, Telling};
pub use memory::{Memory, Payload};
pub use protected::protected;
pub use server::{Lane, Server};
pub use session::{Caller, Session, Watcher};
pub use status::{Refusal, status};
