//! The one question that a file system is asked: where a page of a file is.

/// Where a page of a file is, and how far that holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapped {
    /// On the device from page `lba`, for `pages` pages.
    At {
        /// First page on the device.
        lba: u64,
        /// Pages from there that are contiguous both in the file and on the device, at least one.
        pages: u64,
    },
    /// Reserved on the device from page `lba`, for `pages` pages, but reading as zeros.
    Unwritten {
        /// First page on the device.
        lba: u64,
        /// Pages from there, as for `At`.
        pages: u64,
    },
    /// Nowhere, for `pages` pages.
    Hole {
        /// Pages until the next that is somewhere, at least one; far beyond any file behind the last.
        pages: u64,
    },
}

impl Mapped {
    /// Pages for which the answer holds.
    #[must_use]
    pub const fn pages(self) -> u64 {
        match self {
            Self::At { pages, .. } | Self::Unwritten { pages, .. } | Self::Hole { pages } => pages,
        }
    }
}

/// Where the pages of one file are on the device.
pub trait Mapping {
    /// Where page `index` of the file is.
    fn map(&self, index: u64) -> Mapped;

    /// Pages of `first .. end` that are nowhere.
    fn holes(&self, first: u64, end: u64) -> u64 {
        let (mut at, mut holes) = (first, 0);
        while at < end {
            let mapped = self.map(at);
            if let Mapped::Hole { pages } = mapped {
                holes += pages.min(end - at);
            }
            at = at.saturating_add(mapped.pages());
        }
        holes
    }
}
