//! The commands of a device whose window is a BA-buffer: memory onto which the host pins pages of the block
//! port, to reach them by bytes (2B-SSD §III).
//!
//! # What a store is, and when
//! The window is mapped write-combining. A store gathers in 64 B buffers of the processor, which drain in any
//! order. Until [`sync_entry`](BaBuffer::sync_entry) returns, a crash may keep any aligned 8 B of it and drop
//! the others. After that it outlives host crash and power loss: capacitors dump the buffer and its table to
//! flash, and the next power-up brings both back.
//!
//! # What a block command gets
//! While an entry pins a page, the window is the only way to it. A block read, write or trim of a range with
//! such a page in it is refused with [`Pinned`](crate::PinError::Pinned) and has no effect, whichever of its
//! pages it is. So is a command that was submitted before the pin and completes after it. A block command
//! whose range touches no pinned page never notices.

use crate::{BlockPort, BytePort, Entry, EntryId, Lpa, Result, Structure};

/// What a BA-buffer offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BaPromise {
    /// Size in bytes: all of the window, [`BytePort::bytes`].
    pub bytes: u64,
    /// Most entries at a time.
    pub entries: u32,
}

/// A device whose byte port is a window on a BA-buffer.
///
/// Nothing here asks who may reach which pages: a file system does, before it pins them for somebody.
///
/// Bytes of the window that no entry takes are memory without pages: they hold what was stored there last,
/// and are kept as the others are. A host that pins over them has no store to them under way: such a store
/// may come after what the pin loads.
pub trait BaBuffer: BlockPort + BytePort {
    /// What the buffer offers. Constant for the life of the device.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the device's firmware does something else with
    /// its memory.
    fn ba_buffer(&self) -> Result<BaPromise>;

    /// `BA_PIN`: loads `bytes` bytes of pages from `at` on into the window at `offset`, and adds the entry
    /// `id` to the table. From then on block commands to these pages are refused.
    ///
    /// A crash before it returns leaves the pages as they were, and either the entry with all of them loaded
    /// or no entry, and in this part of the window any mixture of what was there and what is loaded.
    ///
    /// # Errors
    /// [`Error::Misaligned`](crate::Error::Misaligned) unless `offset` and `bytes` are multiples of 4096 and
    /// `bytes` is not 0; [`Error::OutOfRange`](crate::Error::OutOfRange) for bytes outside the window or
    /// pages outside the device; [`TooLong`](crate::PinError::TooLong) for more than the window;
    /// [`EntryInUse`](crate::PinError::EntryInUse), [`PagesOverlap`](crate::PinError::PagesOverlap),
    /// [`WindowOverlap`](crate::PinError::WindowOverlap), [`TableFull`](crate::PinError::TableFull). Media
    /// errors: nothing is pinned then.
    fn pin(&self, id: EntryId, offset: u64, at: Lpa, bytes: u64) -> Result<()>;

    /// `BA_FLUSH`: writes what the device holds of the entry to its pages, all of them, and takes the entry
    /// out of the table. On return the pages are durable, and block commands reach them again. The window
    /// keeps the bytes.
    ///
    /// Stores that were not synced before may miss the pages. A crash before it returns leaves the entry with
    /// all that was synced, or the pages written and no entry.
    ///
    /// # Errors
    /// [`NoSuchEntry`](crate::PinError::NoSuchEntry), [`EntryBusy`](crate::PinError::EntryBusy). Media errors
    /// and lack of room: the entry then stays, with all it has.
    fn flush_entry(&self, id: EntryId) -> Result<()>;

    /// `BA_SYNC`: flushes the calling thread's lines of the entry, fences, and reads to verify. On return its
    /// stores to the entry are durable. No flash is touched.
    ///
    /// # Errors
    /// [`NoSuchEntry`](crate::PinError::NoSuchEntry); a store that the device could not accept.
    fn sync_entry(&self, id: EntryId) -> Result<()>;

    /// `BA_GET_ENTRY_INFO`: the entry as the table has it. One that is being pinned is not there yet.
    ///
    /// # Errors
    /// [`NoSuchEntry`](crate::PinError::NoSuchEntry).
    fn entry_info(&self, id: EntryId) -> Result<Entry>;

    /// The table: every entry, in no order.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported), as [`ba_buffer`](BaBuffer::ba_buffer).
    fn entries(&self) -> Result<Vec<Entry>>;

    /// `BA_READ_DMA`: copies the entry's first `into.len()` bytes to the host by the device's DMA engine, as
    /// [`BytePort::load_dma`] does: what the device holds, without what this thread has stored and not
    /// posted.
    ///
    /// # Errors
    /// [`NoSuchEntry`](crate::PinError::NoSuchEntry); [`TooLong`](crate::PinError::TooLong) for more than the
    /// entry has; [`Error::Unsupported`](crate::Error::Unsupported) on a device without such an engine.
    fn read_dma(&self, id: EntryId, into: &mut [u8], tag: Structure) -> Result<()>;
}
