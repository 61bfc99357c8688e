//! Entries of a BA-buffer's mapping table, and why one is refused (2B-SSD §III).

use crate::{Lpa, PAGE_BYTES};

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
        self.pages * PAGE_BYTES as u64
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
