//! The byte port: loads and stores on a window of the device, as a mapped BAR or CXL.mem range offers them.
//!
//! A store moves through *CPU cache or write-combining buffer → posted on the link → device memory*. It
//! becomes durable when the device has it: the host flushes the lines, fences, and issues a zero-byte
//! *write-verify read*, which the link orders behind every posted write (ByteFS §4.2, 2B-SSD §III-B).

use crate::{BlockPort, Device, Result, Structure, TxId};

/// The byte interface of an SSD: a window with an address space of its own. Addresses are bytes from its
/// start.
///
/// What lies behind the window is the device's: the pages of its block port ([`PageView`]), memory of its own
/// ([`MemoryArea`](crate::MemoryArea)), or a buffer that pages are pinned onto
/// ([`BaBuffer`](crate::BaBuffer)).
///
/// Stores of one host thread are seen by its own loads at once. Ordering and durability are as the
/// [`DurabilityContract`](crate::DurabilityContract) states and no better. Every method refuses a range
/// outside the window with [`Error::OutOfRange`](crate::Error::OutOfRange) and then has no effect.
pub trait BytePort: Device {
    /// Size of the window in bytes. Constant for the life of the device.
    fn bytes(&self) -> u64;

    /// Loads `into.len()` bytes at `at`. The newest stored bytes are returned, committed or not.
    ///
    /// # Errors
    /// Range or media errors.
    fn load(&self, at: u64, into: &mut [u8], tag: Structure) -> Result<()>;

    /// Copies `into.len()` bytes at `at` to the host by the device's DMA engine, where it has one: what the
    /// device holds, as for a block read, without what this thread has stored and not posted. It costs more
    /// than a load to begin and less for each byte.
    ///
    /// # Errors
    /// Range or media errors; [`Error::Unsupported`](crate::Error::Unsupported) on a device without such an
    /// engine.
    fn load_dma(&self, at: u64, into: &mut [u8], tag: Structure) -> Result<()>;

    /// Stores `data` at `at`. Volatile until the lines are flushed, fenced and verified.
    ///
    /// With `tx`, the bytes belong to that transaction: [`recover`](crate::WriteLog::recover) keeps them only
    /// if the transaction was committed. Without, they stand for themselves and may survive in any 8 B
    /// aligned part. A single store must not cross a multiple of 4096.
    ///
    /// # Errors
    /// Range errors; [`Error::Unsupported`](crate::Error::Unsupported) for `tx` on a device whose firmware
    /// has no transactions.
    fn store(&self, at: u64, data: &[u8], tx: Option<TxId>, tag: Structure) -> Result<()>;

    /// Writes back this thread's dirty cache lines covering `len` bytes at `at` (`clwb`). Unordered until
    /// [`fence`](BytePort::fence).
    fn flush_lines(&self, at: u64, len: usize);

    /// Stores `data` and writes its lines back: [`store`](BytePort::store), then
    /// [`flush_lines`](BytePort::flush_lines), for those who do not store there again soon.
    ///
    /// # Errors
    /// As for [`store`](BytePort::store).
    fn store_flushed(&self, at: u64, data: &[u8], tx: Option<TxId>, tag: Structure) -> Result<()>;

    /// Orders this thread's flushed lines before its later stores (`sfence`): they are now posted on the
    /// link.
    fn fence(&self);

    /// Write-verify read: returns when every write this thread has posted is in the device's persistence
    /// domain. Where a fence waits for that by itself, nothing is read: the fence has nobody to tell of what
    /// the device could not accept, this tells of it.
    ///
    /// # Errors
    /// A write that the device could not accept: log full for good, power lost.
    fn verify_read(&self) -> Result<()>;
}

/// A device whose two ports show one thing: byte `a` of the byte port is byte `a % 4096` of page `a / 4096`
/// of the block port.
///
/// A device decides by its firmware what its window shows, so a host asks before it relies on it.
pub trait PageView: BlockPort + BytePort {
    /// Whether the window shows the pages of the block port. Constant for the life of the device.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) if it shows something else.
    fn check_page_view(&self) -> Result<()>;
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

    /// Loads many bytes, all of them posted, by the device's DMA engine where it has one.
    ///
    /// # Errors
    /// As for [`BytePort::load`].
    fn load_many(&self, at: u64, into: &mut [u8], tag: Structure) -> Result<()> {
        match self.load_dma(at, into, tag) {
            Err(crate::Error::Unsupported(_)) => self.load(at, into, tag),
            outcome => outcome,
        }
    }
}

impl<D: BytePort + ?Sized> BytePortExt for D {}
