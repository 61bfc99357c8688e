//! A log-structured merge store on a file system under test: LevelDB's design and format, by the crate
//! `rusty-leveldb`, with its file layer directed to [`Files`](crate::files::Files).
//!
//! The store does everything in the caller's context, compactions too, and takes one caller at a time:
//! [`Store`] holds it under one lock. It starts no thread and asks no clock but [`FilesEnv`]'s, so it runs in
//! virtual time. What its own work costs there, [`StoreCosts`] says.

mod env;
mod order;
mod store;

pub use env::FilesEnv;
pub use store::{Store, StoreCosts, StoreError, StoreSettings};
