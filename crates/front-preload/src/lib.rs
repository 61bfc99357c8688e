//! `libamphi_preload.so`: a program's file calls under an Amphi mount become commands in the queue of the
//! mount's daemon, and all others go to libc as before.
//!
//! The library stands between a program and libc (`LD_PRELOAD`). For what a program opens the library keeps a
//! handle of the queue to the file, and reads, writes and synchronizes through that. Its descriptor is a
//! `placeholder`, which becomes real when something needs it that the library does not know (`mmap`, a child,
//! `fdopen`). Or it is a real one from the beginning, opened through FUSE, with the kernel's offset: where
//! somebody asks for that, and where the library would not see what needs it. Calls with paths need no
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
mod unseen;
mod way;
