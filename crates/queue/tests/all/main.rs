//! The queue's tests, one program: what is compiled for one of them serves all.

mod asked;
mod commands;
mod lanes;
mod naming;
mod rig;
