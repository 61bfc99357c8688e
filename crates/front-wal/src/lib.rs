//! `libamphiwal.so`: BA-WAL for C programs. A log is a file on an SSD image; the program that opens it has
//! the image, the file system on it and the pins to itself.
//!
//! `include/amphi_wal.h` is the interface, kept by hand: a test compiles it and runs the example.
#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "pointers of a C program")]
mod c;
mod errno;
mod session;

pub use session::{Failure, Mode, Opening, Session};
