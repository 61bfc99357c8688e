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
//! such a page in it is refused with [`PinError::Pinned`] and has no effect, whichever of its pages it is. So
//! is a command that was submitted before the pin and completes after it. A block command whose range touches
//! no pinned page never notices.

use crate::{BlockPort, BytePort, Lpa, Result, Structure};

/// The name of an entry of the mapping table. The host chooses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId(pub u32);

/// An entry of the mapping table: which pages the window shows, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Its name.
    pub id: EntryId,
    /// First byte of the window, a multiple of 4096.
    pub offset: u64,
    /// First page.
    pub at: Lpa,
    /// Pages, at least 1.
    pub pages: u64,
}

impl Entry {
    /// Its length in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.pages * crate::PAGE_BYTES as u64
    }

    /// Whether it pins one of these pages.
    #[must_use]
    pub const fn has_page_of(&self, at: Lpa, pages: u64) -> bool {
        self.at.0 < at.0 + pages && at.0 < self.at.0 + self.pages
    }

    /// Whether it takes one of these bytes of the window.
    #[must_use]
    pub const fn has_byte_of(&self, offset: u64, bytes: u64) -> bool {
        self.offset < offset + bytes && offset < self.offset + self.bytes()
    }
}

/// What a BA-buffer offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BaPromise {
    /// Size in bytes: all of the window, [`BytePort::bytes`].
    pub bytes: u64,
    /// Most entries at a time.
    pub entries: u32,
}

/// Why the BA-buffer refused a command, which had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PinError {
    /// Another entry has this name.
    #[error("{0:?} is in the table already")]
    EntryInUse(EntryId),
    /// No entry has this name.
    #[error("the table has no {0:?}")]
    NoSuchEntry(EntryId),
    /// Another pin or flush of this entry is under way.
    #[error("{0:?} is being pinned or flushed")]
    EntryBusy(EntryId),
    /// Every place of the table is taken.
    #[error("the table has {entries} entries, and all are in use")]
    TableFull {
        /// How many there are.
        entries: u32,
    },
    /// Another entry pins some of the pages.
    #[error("some of the pages are pinned by {0:?}")]
    PagesOverlap(EntryId),
    /// Another entry takes some of the window.
    #[error("some of the window is taken by {0:?}")]
    WindowOverlap(EntryId),
    /// More bytes than there are.
    #[error("{what} of {bytes} bytes: there are {most}")]
    TooLong {
        /// The refused command.
        what: &'static str,
        /// Its length.
        bytes: u64,
        /// The longest that could be.
        most: u64,
    },
    /// A block command to a page that an entry pins.
    #[error("page {page:?} is pinned by {entry:?}; the window has it")]
    Pinned {
        /// The first such page.
        page: Lpa,
        /// The entry.
        entry: EntryId,
    },
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
    /// pages outside the device; [`PinError::TooLong`] for more than the window;
    /// [`PinError::EntryInUse`], [`PagesOverlap`](PinError::PagesOverlap),
    /// [`WindowOverlap`](PinError::WindowOverlap), [`TableFull`](PinError::TableFull). Media errors: nothing
    /// is pinned then.
    fn pin(&self, id: EntryId, offset: u64, at: Lpa, bytes: u64) -> Result<()>;

    /// `BA_FLUSH`: writes what the device holds of the entry to its pages, all of them, and takes the entry
    /// out of the table. On return the pages are durable, and block commands reach them again. The window
    /// keeps the bytes.
    ///
    /// Stores that were not synced before may miss the pages. A crash before it returns leaves the entry with
    /// all that was synced, or the pages written and no entry.
    ///
    /// # Errors
    /// [`PinError::NoSuchEntry`], [`PinError::EntryBusy`]. Media errors and lack of room: the entry then
    /// stays, with all it has.
    fn flush_entry(&self, id: EntryId) -> Result<()>;

    /// `BA_SYNC`: flushes the calling thread's lines of the entry, fences, and reads to verify. On return its
    /// stores to the entry are durable. No flash is touched.
    ///
    /// # Errors
    /// [`PinError::NoSuchEntry`]; a store that the device could not accept.
    fn sync_entry(&self, id: EntryId) -> Result<()>;

    /// `BA_GET_ENTRY_INFO`: the entry as the table has it. One that is being pinned is not there yet.
    ///
    /// # Errors
    /// [`PinError::NoSuchEntry`].
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
    /// [`PinError::NoSuchEntry`]; [`PinError::TooLong`] for more than the entry has;
    /// [`Error::Unsupported`](crate::Error::Unsupported) on a device without such an engine.
    fn read_dma(&self, id: EntryId, into: &mut [u8], tag: Structure) -> Result<()>;
}
