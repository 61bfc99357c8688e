//! Time, tasks, locks and randomness.
//!
//! One build, two kinds of time. Inside [`Sim::run`] the calls are virtual and decided by one seed; outside
//! they are OS threads, real locks and the monotonic clock. No crate above this one reads a clock, draws a
//! random number, spawns a thread or takes a lock except through here.
#![deny(unsafe_code)]
// What other crates may not call, this one is made of.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

pub mod cpu;
mod deadline;
mod generator;
pub mod hash;
mod host;
pub mod random;
mod raw;
mod sim;
pub mod sync;
pub mod task;
pub mod time;
pub mod trace;

pub use sim::{Explore, Failure, FailureKind, Found, Schedule, Sim};

/// The examples of the page about this crate are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/rt.md")]
struct Page;
