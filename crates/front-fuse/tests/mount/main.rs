//! The model behind a real mount, used as SQLite, git, tar and a compiler use a file system.
//!
//! Through `/dev/fuse`; `mount_ring` has the same tests through the kernel's rings.
//!
//! Where there is no `/dev/fuse`, or no right to mount, each test says so and passes.

// These tests live in real time: the other side is the kernel.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod attributes;
mod contents;
mod directories;
mod lifecycle;
mod mounted;
mod names;
#[allow(dead_code, reason = "mount_ring looks on at more of it")]
mod observed;
mod offered;
mod other_door;
mod permission_table;
mod permissions;
mod programs;
mod suites;
mod through_kernel;

/// How requests come in these tests.
const TRANSPORT: amphi_front_fuse::Transport = amphi_front_fuse::Transport::Device;
