//! What files hold: pages in host DRAM, their way to the device, ranges and lengths.

pub mod allocate;
pub mod body;
pub mod file;
pub mod free;
pub mod pressure;
pub mod settle;
pub mod sync;
pub mod truncate;
pub mod writeback;
