//! The device's ports: blocks, bytes, vendor commands; and what a crash does to what is on its way through
//! them.

mod ba_buffer;
mod block;
mod byte;
mod command;
mod stages;
mod staging;
mod vendor;

pub use block::Ticket;
pub(crate) use stages::Stages;
