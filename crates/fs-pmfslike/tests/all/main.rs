//! The tests of the PMFS-like file system, one program: what is compiled for one of them serves all.

mod barrier;
mod conformance;
mod hostile;
#[path = "../../../direct-access/tests/shared/mod.rs"]
mod shared;
mod traffic;
