//! The tests of `mount` once more, through the kernel's rings, and what only rings can do.
//!
//! Where the kernel offers none, each test says so and passes.

// These tests live in real time: the other side is the kernel.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

#[path = "../mount/attributes.rs"]
mod attributes;
#[path = "../mount/contents.rs"]
mod contents;
#[path = "../mount/directories.rs"]
mod directories;
#[path = "../mount/lifecycle.rs"]
mod lifecycle;
#[path = "../mount/mounted.rs"]
mod mounted;
#[path = "../mount/names.rs"]
mod names;
#[path = "../mount/observed.rs"]
mod observed;
#[path = "../mount/offered.rs"]
mod offered;
#[path = "../mount/other_door.rs"]
mod other_door;
#[path = "../mount/permission_table/mod.rs"]
mod permission_table;
#[path = "../mount/permissions.rs"]
mod permissions;
#[path = "../mount/programs.rs"]
mod programs;
mod rings;
#[path = "../mount/suites.rs"]
mod suites;
#[path = "../mount/through_kernel.rs"]
mod through_kernel;

/// How requests come in these tests.
const TRANSPORT: amphi_front_fuse::Transport = amphi_front_fuse::Transport::Ring;
