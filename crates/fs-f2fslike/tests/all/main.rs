//! The tests of the F2FS-like file system, one program: what is compiled for one of them serves all.

mod beside;
mod conformance;
mod direct;
mod failed_checkpoint;
mod hostile;
mod in_place;
mod small;
