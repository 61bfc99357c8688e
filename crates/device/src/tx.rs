//! The name of a transaction, which stores, commits and errors carry.

use std::num::NonZeroU32;

/// A transaction number, assigned by the host, growing, never zero. Four bytes on the wire and in the log
/// (ByteFS §4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TxId(pub NonZeroU32);

impl TxId {
    /// The number `raw`, unless it is zero.
    #[must_use]
    pub const fn new(raw: u32) -> Option<Self> {
        match NonZeroU32::new(raw) {
            Some(raw) => Some(Self(raw)),
            None => None,
        }
    }

    /// The number itself.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0.get()
    }
}
