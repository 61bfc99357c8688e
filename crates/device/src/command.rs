//! Commands to firmware that hosts a file system: what a call of the host costs outside of flash (DevFS
//! §4.6).
//!
//! What a command says is the matter of the file system and its library. The device brings a command with its
//! data in, lends a processor, and takes the completion back.

use crate::{Device, Result};

/// A device whose firmware hosts a file system.
pub trait CommandPort: Device {
    /// Processors that carry out commands, at least one (DevFS §5.1: four). Constant for the life of the
    /// device.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the device's firmware hosts none.
    fn processors(&self) -> Result<usize>;

    /// Bytes of device memory, from the first on, that the capacitors' energy is enough to bring to flash
    /// when power is lost (DevFS §4.3). Constant for the life of the device.
    fn saved_bytes(&self) -> u64;

    /// The host has rung the doorbell: waits until the command and `bytes` of its data are in the device.
    ///
    /// # Errors
    /// [`Error::PowerLost`](crate::Error::PowerLost): the command was not carried out.
    fn receive(&self, bytes: u64) -> Result<()>;

    /// A processor of the device computes what a command takes that moves `bytes`. The calling task runs on
    /// that processor: it alone, until the command is done.
    fn compute(&self, bytes: u64);

    /// A processor of the device, at a command, moves `count` structures of `bytes` in all between the
    /// device's memory and the host's (reverse caching, DevFS §4.4). Waits until they are moved.
    fn exchange(&self, count: u64, bytes: u64);

    /// Waits until the host has the completion and `bytes` of data.
    ///
    /// # Errors
    /// [`Error::PowerLost`](crate::Error::PowerLost): the host does not know what became of the command.
    fn complete(&self, bytes: u64) -> Result<()>;
}
