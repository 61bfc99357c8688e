//! The tests of the NOVA-like file system, one program: what is compiled for one of them serves all.

mod conformance;
mod hostile;
#[path = "../../../direct-access/tests/shared/mod.rs"]
mod shared;
mod traffic;
