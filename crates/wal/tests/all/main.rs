//! The log's tests, one program: what is compiled for one of them serves all.

mod cuts;
mod log;
mod rig;
