//! `libamphifiles.so`, and the same for Rust: files of an Amphi file system for programs that link to it. No
//! call goes through the kernel.
//!
//! [`Files`] is a file system, by one of two ways: the queue of a mount's daemon, beside which everybody else
//! uses the mount, or an image that this process opens and has to itself. Both carry out the same commands
//! ([`amphi_queue`]), so that a program is the same on either.
//!
//! `include/amphi.h` is the interface for C, kept by hand: a test compares it with the exported functions,
//! compiles it and runs the example.
#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "pointers of a C program")]
mod c;
mod errno;
mod file;
mod files;
#[allow(unsafe_code, reason = "a call of the C library that takes a function")]
mod fork;
mod image;
mod listing;
mod mounted;
mod request;
mod way;

pub use amphi_queue::format::{Attributes, Space, kind};
pub use errno::OpenError;
pub use file::{Allocate, File, Whence};
pub use files::{Files, How, SetXattr, Time};
pub use image::ImageOptions;
pub use listing::{Entry, Listing};
