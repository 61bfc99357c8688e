//! What a dual-interface SSD promises its host: a block port, a byte port and what lies behind it, vendor
//! commands, and the durability contract that says which of the host's writes outlive which failure.
//!
//! This crate performs no I/O. File systems are generic over these traits; the emulated SSD (and, later, real
//! hardware) implements them. Nothing here can cut power, fork a device or read its wear: such powers belong
//! to the emulator alone.
#![forbid(unsafe_code)]

mod address;
mod ba_buffer;
mod block;
mod byte;
mod command;
mod contract;
mod entry;
mod error;
mod memory;
mod tag;
mod tx;
mod writelog;

pub use address::{LINE_BYTES, Lpa, PAGE_BYTES, lines_covering};
pub use ba_buffer::{BaBuffer, BaPromise};
pub use block::{BlockPort, Completion};
pub use byte::{BytePort, BytePortExt, PageView};
pub use command::CommandPort;
pub use contract::{BlockDurability, ByteDurability, DurabilityContract};
pub use entry::{Entry, EntryId, PinError};
pub use error::{Error, Result};
pub use memory::{MemoryArea, MemoryPromise};
pub use tag::Structure;
pub use tx::TxId;
pub use writelog::{RecoverReport, WriteLog};

/// What every device has, whichever ports it offers.
pub trait Device: Send + Sync {
    /// Number of 4 KB pages of the block side. What the byte port shows has its own size,
    /// [`BytePort::bytes`].
    fn capacity_pages(&self) -> u64;

    /// What survives a host crash and a power loss. Constant for the life of the device.
    fn contract(&self) -> DurabilityContract;
}
