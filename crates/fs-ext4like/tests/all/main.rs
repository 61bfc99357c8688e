//! The tests of the ext4-like file system, one program: what is compiled for one of them serves all.

mod concurrent;
mod conformance;
mod crash;
mod golden;
mod hostile;
mod image;
mod options;
mod sync;
