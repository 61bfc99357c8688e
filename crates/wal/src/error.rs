//! Why a log refused or failed.

use amphi_device::EntryId;

/// Result of an operation of a log.
pub type Result<T> = std::result::Result<T, Error>;

/// A refusal (nothing was changed) or a failure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The device refused or failed a command. Nothing that was committed is lost; the call may be repeated.
    #[error(transparent)]
    Device(#[from] amphi_device::Error),
    /// What stands on the device cannot be what a log wrote.
    #[error("the log is damaged: {what}, at byte {at}")]
    Damaged {
        /// What is wrong.
        what: &'static str,
        /// Where, from the start of the header page.
        at: u64,
    },
    /// The pages or the part of the window given to the log are too small, misaligned or not on the device.
    #[error("the log cannot be put there: {0}")]
    Place(&'static str),
    /// The log's header says another number of pages than it was opened with.
    #[error("the log has {found} pages, not {given}")]
    Pages {
        /// What the header says.
        found: u64,
        /// What the caller says.
        given: u64,
    },
    /// An entry of the BA-buffer that is none of the log's pins its pages, or an entry with its name pins
    /// others.
    #[error("{0:?} of the BA-buffer is not the log's")]
    ForeignEntry(EntryId),
    /// A record is larger than the log takes.
    #[error("a record of {bytes} bytes is larger than {most} bytes")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The largest that is taken.
        most: usize,
    },
    /// The log has no room for the record until it is truncated.
    #[error("a record takes {needed} bytes, and the log has {left} left")]
    Full {
        /// Bytes that the record takes.
        needed: u64,
        /// Bytes that are left.
        left: u64,
    },
    /// A truncation failed half-way: what the header says is known only once the log is opened again.
    #[error("the log has to be opened again: a truncation of it failed")]
    OpenAgain,
}
