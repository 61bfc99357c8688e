//! What files hold: pages in host DRAM, and their way to the device by bytes or by block (BY-13, BY-14,
//! BY-16).

pub mod allocate;
pub mod body;
pub mod diff;
pub mod direct;
pub mod duplicate;
pub mod file;
pub mod pressure;
pub mod truncate;
pub mod writeback;
