//! BA-WAL (2B-SSD §IV-B): a write-ahead log whose commits store just the bytes of their records into an SSD's
//! BA-buffer, while flash gets them later, half a window at a time.
//!
//! A log lies in a range of pages of a device. It is [made](create), then [opened](Recovery::begin): that
//! gives back, one by one, the records that are whole, and then the [`Log`], which appends behind them.
#![forbid(unsafe_code)]

mod error;
mod format;
mod halves;
mod header;
mod log;
mod place;
pub mod planted;
mod recover;

pub use error::{Error, Result};
pub use format::RECORD_MAX;
pub use header::create;
pub use log::Log;
pub use place::{Mode, Options, Place};
pub use recover::{Record, Recovery};
