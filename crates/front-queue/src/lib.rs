//! The second door of a mount: programs that share memory with its daemon and put file commands into it
//! ([`amphi_queue`]), instead of asking the kernel, which would ask the daemon.
//!
//! A [`Door`] listens at an abstract Unix socket whose name is made of the mount's device number, so that
//! whoever has a path under the mount finds it. A program that connects gets sealed memory with a queue in
//! it, and what it does there is done with the credentials that the kernel says it has. [`connect`] is the
//! program's side.
//!
//! Invariants:
//! - A client reaches nothing but its own memory and what its credentials allow. Where the daemon cannot know
//!   as much as the kernel does (capabilities of a process that it cannot see), it refuses, and the client
//!   asks the kernel.
//! - Only who can see the mount gets in: a client shows a descriptor of its root.
//! - A client's end, however it comes, closes what it had open.
//! - A server thread that finds no command for [`amphi_queue::POLL_NS`] sleeps, and costs nothing until it is
//!   rung.
#![forbid(unsafe_code)]

mod client;
mod door;
mod futex;
mod hello;
mod lanes;
mod mounts;
mod peer;
mod placement;
mod workers;

pub use client::{ConnectError, Connection, LaneGuard, Reached, connect, reach};
pub use door::{Admission, Door, FILES_MAX, socket_name};
pub use futex::FutexBell;
pub use lanes::FreeLanes;
pub use mounts::{ListedMount, listed_mounts};
pub use peer::credentials;
