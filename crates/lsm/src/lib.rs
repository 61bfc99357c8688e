//! A key-value store on a dual-interface SSD: its log in the memory area (AugeFS §V). It knows nothing of files.
#![forbid(unsafe_code)]

mod error;
mod format;
pub mod log;
pub mod planted;

pub use error::{Error, Result};
