//! Tests of the list of file systems, one program: each file system is compiled once.

mod golden;
mod list;
