//! Traces: what was done to a file system, one operation a line.
//!
//! [`operation`] is the grammar of a line and what it does, [`mod@file`] that of a whole trace; [`recording`]
//! makes a trace of what programs do on a mount. The crash laboratory crashes traces, the benchmark
//! laboratory replays them; the grammar is in `docs/crashlab.md`.
#![forbid(unsafe_code)]

pub mod file;
pub mod operation;
pub mod recording;
mod scribe;

pub use file::Trace;
pub use operation::{How, Operation, Place, XATTR, at, pattern};
pub use recording::Recording;
