//! The tests of pins, one program: what is compiled for one of them serves all.

mod conformance;
mod logs;
mod pins;
mod wal;
