//! What runs in a shared range but for its C library's replacements: the file system behind the call table,
//! and the door for clients.
//!
//! The program is `main.rs`. A process of it makes the memory, loads the program a second time, into the
//! memory, and goes on there (`load.rs`): so the code, the data, the heap (`allocated.rs`) and the C library
//! with all its state lie in the range, and every process that maps it has them at the same addresses. Locks
//! need no change for that: `amphi_rt`'s, which are parking_lot's, keep their waiting threads in a table that
//! lies in the range too, and the only thing about them that is private to a process, a flag of `futex(2)`,
//! is taken away where the program is linked (`replaced.rs`). No other program pays for it.
#![deny(unsafe_code)]

pub mod contexts;
pub mod door;
mod errands;
mod guests;
mod planted;
pub mod range;
pub mod serve;
mod tell;
mod visitors;

pub use door::serve_range;
