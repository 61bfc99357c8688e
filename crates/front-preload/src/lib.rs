//! `libamphi_preload.so`: a program's file calls under an Amphi mount become commands in the queue of the
//! mount's daemon, and all others go to libc as before.
//!
//! The library stands between a program and libc (`LD_PRELOAD`). What a program opens has a descriptor of the
//! kernel's, and beside it the library keeps a handle of the queue to the file, and reads, writes and
//! synchronizes through that. The descriptor is a real one, opened through FUSE: whatever the library does
//! not know (`mmap`, a child, stdio inside libc, a raw system call) works on it, and its offset is the
//! kernel's. Or it is a `placeholder` that becomes real when it is needed. Calls with paths need no
//! descriptor at all.
//!
//! Invariants:
//! - A call that the queue cannot do, or may not, is done by the kernel. An answer of the queue that the
//!   kernel might give otherwise
//!   (no permission, a path out of the mount) is asked again there.
//! - A handle that was closed names nothing, so a descriptor whose number was used again never reaches an
//!   older file.
//! - Nothing is taken into the library before a path under a mount is used; a process without one pays a
//!   comparison for each call.
//! - Nothing here panics: a panic in a program's call would be the program's end.
#![deny(unsafe_code)]

mod calls;
mod command;
mod credentials;
mod descriptors;
mod errno;
mod fork;
mod inherited;
mod mapped;
mod masked;
mod mounts;
mod next;
mod placeholder;
mod pointers;
mod process;
mod report;
mod threads;
mod way;
