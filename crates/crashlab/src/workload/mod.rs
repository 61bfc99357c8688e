//! What is done to a file system before and while it crashes.

mod ace;
mod prerequisites;
pub mod random;

pub use ace::{Bounded, Sequences, additions, operations};
pub use amphi_trace::{How, Operation, Place, XATTR, at, pattern};
pub use prerequisites::prerequisites;
