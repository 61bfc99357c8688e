//! Tests of the list of file systems, one program: each file system is compiled once.

mod discard;
mod golden;
mod list;
mod tune;
