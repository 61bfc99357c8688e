//! What a dual-interface SSD promises its host: a block port, a byte port, vendor commands, and the
//! durability contract that says which of the host's writes outlive which failure.
//!
//! This crate performs no I/O. File systems are generic over these traits; the emulated SSD (and, later, real
//! hardware) implements them. Nothing here can cut power, fork a device or read its wear: such powers belong to
//! the emulator alone.
#![forbid(unsafe_code)]

mod address;
mod block;
mod byte;
mod contract;
mod error;
mod tag;
mod writelog;

pub use address::{LINE_BYTES, Lpa, PAGE_BYTES, lines_covering};
pub use block::{BlockPort, Completion};
pub use byte::{BytePort, BytePortExt};
pub use contract::{BlockDurability, ByteDurability, DurabilityContract};
pub use error::{Error, Result};
pub use tag::Structure;
pub use writelog::{RecoverReport, TxId, WriteLog};

/// What every device has, whichever ports it offers.
pub trait Device: Send + Sync {
    /// Number of 4 KB pages the host may address, on the block port and (times 4096) on the byte port.
    fn capacity_pages(&self) -> u64;

    /// What survives a host crash and a power loss. Constant for the life of the device.
    fn contract(&self) -> DurabilityContract;
}
