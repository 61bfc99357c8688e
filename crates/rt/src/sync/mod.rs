//! Locks. The names and guards are `lock_api`'s; the raw locks below them work in real and in virtual time.

pub mod atomic;
mod channel;
mod once;
mod padded;
mod ranges;
mod semaphore;

pub use crate::raw::{Condvar, RawMutex, RawRwLock, WaitTimeoutResult};
pub use channel::{ReceiveError, Receiver, SendError, Sender, channel};
pub use once::{Barrier, Once, OnceCell};
pub use padded::Padded;
pub use ranges::{RangeGuard, RangeLock};
pub use semaphore::{Permits, Semaphore};

/// Mutual exclusion. Usable in statics; the guard stays with the task that took it.
pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;
/// What holds a [`Mutex`].
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;
/// What holds a part of what a [`Mutex`] protects.
pub type MappedMutexGuard<'a, T> = lock_api::MappedMutexGuard<'a, RawMutex, T>;
/// Many readers or one writer. A waiting writer stops new readers, so a task must not read-lock twice except
/// with `read_recursive`.
pub type RwLock<T> = lock_api::RwLock<RawRwLock, T>;
/// What holds a [`RwLock`] for reading.
pub type RwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawRwLock, T>;
/// What holds a [`RwLock`] for writing.
pub type RwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, RawRwLock, T>;
/// What holds a [`RwLock`] for reading with the right to become the writer.
pub type RwLockUpgradableReadGuard<'a, T> = lock_api::RwLockUpgradableReadGuard<'a, RawRwLock, T>;
