//! The SSD's tests, one program: what is compiled for one of them serves all.

mod ba_buffer;
mod calibration;
mod cleaning_time;
mod failures;
mod images;
mod link;
mod log_pieces;
mod mapping;
mod memory;
mod page_cache;
mod pressure;
mod telemetry;
mod threads;
mod unreadable;
