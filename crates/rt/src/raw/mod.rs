//! Every `unsafe` of this crate: stack switching, the pointer to the running Sim, and the raw locks under
//! `lock_api`'s guards.
//!
//! What the rest of the crate relies on: a fiber never leaves the OS thread that made it; a Sim outlives
//! every fiber that can reach it; a raw lock is released only by the task that holds it.
#![allow(unsafe_code)]

mod condvar;
mod current;
mod fiber;
mod mutex;
mod rwlock;
mod scope;

pub use condvar::{Condvar, WaitTimeoutResult};
pub(crate) use current::in_sim;
pub(crate) use fiber::{Fiber, Stack, suspend};
pub use mutex::RawMutex;
pub use rwlock::RawRwLock;
pub(crate) use scope::run_main;
pub use scope::{Scope, ScopedJoinHandle, scope};
