//! A memory area: battery-backed memory of the device that the host reaches by bytes alone (RomeFS §3.2).
//!
//! It lies beside the block side and never holds pages of it. There are no transactions and no vendor
//! commands: what a file system wants to be atomic beyond one unit, it builds from the order of its stores.

use crate::{ByteDurability, BytePort, Result};

/// What a memory area promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPromise {
    /// Size in bytes: all of the window, [`BytePort::bytes`].
    pub bytes: u64,
    /// Aligned bytes of a store that no failure tears: a crash leaves all of them or none.
    pub store_atomic_bytes: u32,
    /// When a store outlives host crash and power loss.
    pub durability: ByteDurability,
}

/// A device whose byte port is a window on a memory area.
///
/// A new area holds zeros. What is durable in it stays there until it is stored to again: no trim, no block
/// command and no loss of power changes it.
pub trait MemoryArea: BytePort {
    /// What the area promises. Constant for the life of the device.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the device's firmware does something else with
    /// its memory.
    fn memory(&self) -> Result<MemoryPromise>;
}
