//! Why a device refused or failed a command.

use crate::{Lpa, PinError, TxId};

/// Result of a device operation.
pub type Result<T> = std::result::Result<T, Error>;

/// A device's refusal (the command had no effect) or failure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The range is not inside the port's address space.
    #[error("{what} of {len} bytes at byte {at} ends beyond the port's {bytes} bytes")]
    OutOfRange {
        /// The refused command.
        what: &'static str,
        /// First byte.
        at: u64,
        /// Length in bytes.
        len: u64,
        /// Size of the address space in bytes.
        bytes: u64,
    },
    /// Length or address is not a multiple of what the port requires.
    #[error("{what}: {value} is not {expected}")]
    Misaligned {
        /// The refused field.
        what: &'static str,
        /// Its value.
        value: u64,
        /// What it must be, in words.
        expected: &'static str,
    },
    /// The page cannot be read: more bit errors than ECC corrects, or its contents fail their checksum.
    #[error("page {0:?} cannot be read: uncorrectable media error")]
    Media(Lpa),
    /// No free flash block is left, or the file that holds the image cannot grow.
    #[error("the device has no room left: {0}")]
    NoSpace(String),
    /// The device lost power; reopen it.
    #[error("the device has lost power; reopen the image")]
    PowerLost,
    /// The firmware does not offer this command.
    #[error("this device's firmware does not support {0}")]
    Unsupported(&'static str),
    /// The transaction number was already committed and has not been trimmed from the transaction log.
    #[error("transaction {0:?} is already committed")]
    AlreadyCommitted(TxId),
    /// The BA-buffer refused the command, or its LBA checker did.
    #[error(transparent)]
    Pin(#[from] PinError),
    /// The image behind the emulated device could not be read or written.
    #[error("image file: {0}")]
    Image(String),
}
