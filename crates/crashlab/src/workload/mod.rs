//! What is done to a file system before and while it crashes.

mod ace;
mod operation;
mod prerequisites;
pub mod random;

pub use ace::{Bounded, Sequences, additions, operations};
pub use operation::{How, Operation, Place, XATTR, at, pattern};
pub use prerequisites::prerequisites;
