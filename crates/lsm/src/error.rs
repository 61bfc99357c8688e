//! Why the store refused or failed.

/// Result of an operation of the store.
pub type Result<T> = std::result::Result<T, Error>;

/// A refusal (nothing was changed) or a failure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The device refused or failed a command.
    #[error(transparent)]
    Device(#[from] amphi_device::Error),
    /// What stands on the device cannot be what the store wrote.
    #[error("the store is damaged: {what} at {at}")]
    Damaged {
        /// What is wrong.
        what: &'static str,
        /// Where: a byte of the memory area or a page, as `what` says.
        at: u64,
    },
    /// The areas given to the store are too small, misaligned or not on the device.
    #[error("the store cannot be put there: {0}")]
    Place(&'static str),
    /// A key, value or batch is larger than the store takes.
    #[error("{what} of {bytes} bytes is larger than {limit} bytes")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its size.
        bytes: usize,
        /// The largest that is taken.
        limit: usize,
    },
    /// No run of free pages is long enough for a table.
    #[error("no {0} free pages in a row are left for a table")]
    NoSpace(u64),
}
