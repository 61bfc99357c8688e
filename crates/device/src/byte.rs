//! The byte port: loads and stores over the whole device, as a mapped BAR or CXL.mem range offers them.
//!
//! A store moves through *CPU cache or write-combining buffer → posted on the link → device memory*. It becomes
//! durable when the device has it: the host flushes the lines, fences, and issues a zero-byte *write-verify read*,
//! which the link orders behind every posted write (ByteFS §4.2, 2B-SSD §III-B).

use crate::{Device, Result, Structure, TxId};

/// The byte interface of an SSD. Addresses are bytes from the start of the device.
///
/// Stores of one host thread are seen by its own loads at once. Ordering and durability are as the
/// [`DurabilityContract`](crate::DurabilityContract) states and no better. Every method refuses a range outside the device with
/// [`Error::OutOfRange`](crate::Error::OutOfRange) and then has no effect.
pub trait BytePort: Device {
    /// Loads `into.len()` bytes at `at`. The newest stored bytes are returned, committed or not.
    ///
    /// # Errors
    /// Range or media errors.
    fn load(&self, at: u64, into: &mut [u8], tag: Structure) -> Result<()>;

    /// Copies `into.len()` bytes at `at` to the host by the device's DMA engine, where it has one: what the device holds, as for a block
    /// read, without what this thread has stored and not posted. It costs more than a load to begin and less for each byte.
    ///
    /// # Errors
    /// Range or media errors; [`Error::Unsupported`](crate::Error::Unsupported) on a device without such an engine.
    fn load_dma(&self, _at: u64, _into: &mut [u8], _tag: Structure) -> Result<()> {
        Err(crate::Error::Unsupported("reads of byte ranges by DMA"))
    }

    /// Stores `data` at `at`. Volatile until the lines are flushed, fenced and verified.
    ///
    /// With `tx`, the bytes belong to that transaction: [`recover`](crate::WriteLog::recover) keeps them only if the transaction was
    /// committed. Without, they stand for themselves and may survive in any 8 B aligned part. A single store must not cross a
    /// 4 KB page.
    ///
    /// # Errors
    /// Range errors; [`Error::Unsupported`](crate::Error::Unsupported) for `tx` on a device whose firmware has no transactions.
    fn store(&self, at: u64, data: &[u8], tx: Option<TxId>, tag: Structure) -> Result<()>;

    /// Writes back this thread's dirty cache lines covering `len` bytes at `at` (`clwb`). Unordered until [`fence`](BytePort::fence).
    fn flush_lines(&self, at: u64, len: usize);

    /// Orders this thread's flushed lines before its later stores (`sfence`): they are now posted on the link.
    fn fence(&self);

    /// Write-verify read: returns when every write this thread has posted is in the device's persistence domain.
    ///
    /// # Errors
    /// A write that the device could not accept: log full for good, power lost.
    fn verify_read(&self) -> Result<()>;
}

/// Sequences over [`BytePort`] that callers would otherwise spell out.
pub trait BytePortExt: BytePort {
    /// Stores `data` and makes it durable: store, flush, fence, write-verify read.
    ///
    /// # Errors
    /// As for [`BytePort::store`] and [`BytePort::verify_read`].
    fn persist(&self, at: u64, data: &[u8], tx: Option<TxId>, tag: Structure) -> Result<()> {
        self.store(at, data, tx, tag)?;
        self.flush_lines(at, data.len());
        self.fence();
        self.verify_read()
    }
}

impl<D: BytePort + ?Sized> BytePortExt for D {}
